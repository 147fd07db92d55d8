"""The last frames of a stream, so that a prompt on a frame that the user has seen finds its way to the newest.

A user clicks on what is on the screen, which is older than what the tracker has before it. The prompt is applied on the
frame that was seen, in a session of its own, carried along some of the frames since then, and handed over as a mask.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import MaskPrompt, Prompt
from sam3_stream.core.records import EncodedFrame, MaskArray, TrackedFrame
from sam3_stream.models.protocols import VideoModel
from sam3_stream.stages.memory_tracker.combining import Target, session_prompt

_MOST_STEPS = 8  # of catching up; more would hold up the stream


@dataclass(frozen=True, slots=True)
class _Recent:
    encoded: EncodedFrame
    tracked: TrackedFrame


class RecentFrames:
    """Keeps the features and results of the last frames.

    Args:
        count: How many.
    """

    def __init__(self, count: int = 24) -> None:
        self._frames: deque[_Recent] = deque(maxlen=count)

    def note(self, encoded: EncodedFrame, tracked: TrackedFrame) -> None:
        """Keep a frame that has been tracked."""
        self._frames.append(_Recent(encoded, tracked))

    def carry(
        self, model: VideoModel, prompt: Prompt, object_id: int | None, seen: int, newest: EncodedFrame
    ) -> MaskArray | None:
        """Where that is on the newest frame which a prompt shows on an earlier one.

        Args:
            model: The stream's model.
            prompt: A click, box or mask.
            object_id: The object that it corrects; None for a new one.
            seen: Number of the frame that the user was looking at.
            newest: The frame that the tracker is about to step.

        Returns:
            Its mask on the newest frame; None when that frame is the one that was seen, or the one that was seen is not
            kept any more: then the prompt is best taken for one on the newest.

        Raises:
            PromptError: It cannot be found any more, or the prompt says nothing.
        """
        size = newest.frame.width, newest.frame.height
        kept = [each for each in self._frames if each.encoded.frame.sequence >= seen]
        same_size = all((each.encoded.frame.width, each.encoded.frame.height) == size for each in kept)
        if not kept or (len(kept) == len(self._frames) and kept[0].encoded.frame.sequence > seen) or not same_size:
            return None
        first, rest = kept[0], [each.encoded for each in kept[1:]]
        said = [*_mask_of(first.tracked, object_id), prompt]
        session = model.open_session(lambda: 1)
        try:
            tracked = session.step(first.encoded, [session_prompt(Target(1, "seen", "seen"), said)])
            for encoded in (*_some_of(rest, _MOST_STEPS - 2), newest):
                tracked = session.step(encoded)
        finally:
            session.close()
        found = [each for each in tracked.present if each.mask.any()]
        if not found:
            raise PromptError("what you pointed at is not in the picture any more")
        return found[0].mask


def _mask_of(tracked: TrackedFrame, object_id: int | None) -> list[Prompt]:
    return [MaskPrompt(mask=each.mask) for each in tracked.present if each.object_id == object_id and each.mask.any()]


def _some_of(frames: Sequence[EncodedFrame], count: int) -> list[EncodedFrame]:
    """At most so many, evenly spread."""
    stride = -(-len(frames) // count) if frames else 1
    return list(frames[::-1][::stride][::-1])
