"""The encoder stage: frames in, features out, in batches."""

from __future__ import annotations

from sam3_stream.core.records import EncodedFrame, Frame
from sam3_stream.models.protocols import VideoModel
from sam3_stream.runtime.channel import Channel, EndOfStream


class ImageEncoder:
    """Encodes frames with a model's image encoder.

    Args:
        model: The model; its `encode` is called from this stage's thread only.
        max_batch: How many frames at most go through the encoder at once.
        max_wait_s: How long the first frame of a batch waits for others; 0 takes only what waits already.
        first_sequence: Frames before this one pass with no features: their results are known already (`--resume`).
    """

    name = "encoder"

    def __init__(
        self, model: VideoModel, *, max_batch: int = 1, max_wait_s: float = 0.0, first_sequence: int = 0
    ) -> None:
        if max_batch < 1:
            raise ValueError(f"max_batch must be 1 or more, got {max_batch}")
        self._model = model
        self._max_batch = max_batch
        self._max_wait_s = max_wait_s
        self._first_sequence = first_sequence

    def run(self, inbox: Channel[Frame], outbox: Channel[EncodedFrame]) -> None:
        """Encode every frame of the inbox, in order."""
        for frame in inbox:
            if frame.sequence < self._first_sequence:
                outbox.put(EncodedFrame(frame, features=None, resolution=(frame.width, frame.height)))
                continue
            for encoded in self._model.encode([frame, *self._companions(inbox)]):
                outbox.put(encoded)

    def _companions(self, inbox: Channel[Frame]) -> list[Frame]:
        """More frames for the batch, as far as there are any."""
        frames = inbox.take_waiting(self._max_batch - 1)
        while self._max_wait_s > 0 and len(frames) < self._max_batch - 1:
            try:
                frames.append(inbox.get(timeout_s=self._max_wait_s))
            except (TimeoutError, EndOfStream):
                break
        return frames
