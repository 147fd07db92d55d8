"""The last frames of a stream, so that a prompt on a frame that the user has seen finds its way to the newest.

A user clicks on what is on the screen, which is older than what the tracker has before it. What begins an object is
applied on the frame that was seen, in a session of its own, carried along some of the frames since then, and handed
over as a mask. A click that corrects an object follows the picture to the newest frame: the tracker knows the object
better than a session that has just begun.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import cv2
import numpy as np
import numpy.typing as npt

from sam3_stream.core.errors import PromptError
from sam3_stream.core.prompts import MaskPrompt, PointPrompt, Prompt
from sam3_stream.core.records import EncodedFrame, Frame, MaskArray, TrackedFrame
from sam3_stream.models.protocols import VideoModel
from sam3_stream.stages.memory_tracker.combining import Target, session_prompt
from sam3_stream.stages.memory_tracker.mask_carrier import small_grey

_MOST_STEPS = 8  # of catching up; more would hold up the stream
_FLOW_SIDE = 480  # pixels of the longer side


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

    def follow(self, click: PointPrompt, seen: int, newest: EncodedFrame) -> PointPrompt:
        """Where on the newest frame that is which a click shows on an earlier one, by sparse optical flow.

        Args:
            click: On the frame that was seen.
            seen: Number of that frame.
            newest: The frame that the tracker is about to step.
        """
        point = np.array([[click.x, click.y]], np.float32)
        frames = [each.encoded for each in self._since(seen, newest)]
        for before, after in itertools.pairwise([*frames, newest]):
            point = _flow(before.frame, after.frame, point)
        x, y = (
            float(np.clip(value, 0, side - 1))
            for value, side in zip(point[0], (newest.frame.width, newest.frame.height), strict=True)
        )
        return replace(click, x=x, y=y)

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
        kept = self._since(seen, newest)
        if not kept:
            return None
        first, rest = kept[0], [each.encoded for each in kept[1:]]
        session = model.open_session(lambda: 1)
        try:
            for said in (*_mask_of(first.tracked, object_id), prompt):  # one corrects the other
                tracked = session.step(first.encoded, [session_prompt(Target(1, "seen", "seen"), [said])])
            for encoded in (*_some_of(rest, _MOST_STEPS - 2), newest):
                tracked = session.step(encoded)
        finally:
            session.close()
        found = [each for each in tracked.present if each.mask.any()]
        if not found:
            raise PromptError("what you pointed at is not in the picture any more")
        return found[0].mask

    def _since(self, seen: int, newest: EncodedFrame) -> list[_Recent]:
        """The frames from the one that was seen on; none if it is not kept any more, or has another size."""
        size = newest.frame.width, newest.frame.height
        kept = [each for each in self._frames if each.encoded.frame.sequence >= seen]
        same_size = all((each.encoded.frame.width, each.encoded.frame.height) == size for each in kept)
        is_kept = kept and (len(kept) < len(self._frames) or kept[0].encoded.frame.sequence == seen)
        return kept if is_kept and same_size else []


def _flow(before: Frame, after: Frame, points_n2: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Where the points of one frame are on another; where they were if that cannot be told."""
    grey_before, grey_after = (small_grey(each, _FLOW_SIDE) for each in (before, after))
    to_small = np.array(grey_before.shape[::-1], np.float32) / np.array([before.width, before.height], np.float32)
    here: Any = points_n2 * to_small
    there, found, _ = cv2.calcOpticalFlowPyrLK(grey_before, grey_after, here, cast(Any, None), winSize=(31, 31))
    return np.asarray(np.where(found.astype(bool), there, here) / to_small, np.float32)


def _mask_of(tracked: TrackedFrame, object_id: int | None) -> list[Prompt]:
    return [MaskPrompt(mask=each.mask) for each in tracked.present if each.object_id == object_id and each.mask.any()]


def _some_of(frames: Sequence[EncodedFrame], count: int) -> list[EncodedFrame]:
    """At most so many, evenly spread."""
    stride = -(-len(frames) // count) if frames else 1
    return list(frames[::-1][::stride][::-1])
