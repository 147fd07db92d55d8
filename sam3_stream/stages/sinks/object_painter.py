"""Drawing tracked objects with supervision's annotators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import supervision as sv

from sam3_stream.core.masks_format import SCORE_DECIMALS
from sam3_stream.core.palette import LETTERS_BY_COLOR
from sam3_stream.core.records import ImageArray, TrackedFrame, TrackedObject
from sam3_stream.stages.sinks.yuv_canvas import Region, grown_region

_OPACITY = 0.4


@dataclass(frozen=True, slots=True, eq=False)
class Drawing:
    """What is to be painted on a frame.

    Attributes:
        objects: The objects that are in the picture.
        boxes_xyxy_n4: Their boxes in pixels of the picture: int (n, 4).
        region: The part of the picture that changes, in even numbers.
    """

    objects: tuple[TrackedObject, ...]
    boxes_xyxy_n4: npt.NDArray[np.int_]
    region: Region


class ObjectPainter:
    """Paints each object's tint, outline, and a label with its id, name and score, in the colour of its id.

    Args:
        width: Displayed width of the video in pixels.
        height: Displayed height in pixels. Lines and letters are sized for the picture.
    """

    def __init__(self, width: int, height: int) -> None:
        by_id = sv.ColorLookup.TRACK
        self._width, self._height = width, height
        self._thickness = sv.calculate_optimal_line_thickness((width, height))
        self._text_scale = max(0.4, sv.calculate_optimal_text_scale((width, height)))
        self._text_thickness = max(1, self._thickness // 2)
        self._padding = round(self._text_scale * 10)
        palette = sv.ColorPalette.from_hex(list(LETTERS_BY_COLOR))
        self._tint = sv.MaskAnnotator(palette, opacity=_OPACITY, color_lookup=by_id)
        self._outline = sv.PolygonAnnotator(palette, thickness=self._thickness, color_lookup=by_id)
        self._label = sv.LabelAnnotator(
            palette,
            text_color=sv.ColorPalette.from_hex(list(LETTERS_BY_COLOR.values())),
            color_lookup=by_id,
            text_scale=self._text_scale,
            text_thickness=self._text_thickness,
            text_padding=self._padding,
            smart_position=True,
        )

    def plan(self, tracked: TrackedFrame) -> Drawing | None:
        """What to paint and where; None when there is nothing."""
        boxed = [(each, box) for each in tracked.present if (box := each.box_xywh) is not None]
        if not boxed:
            return None
        drawn = tuple(each for each, _ in boxed)
        boxes_n4 = np.array([box for _, box in boxed])
        boxes_n4[:, 2:] += boxes_n4[:, :2]
        return Drawing(drawn, boxes_n4, self._region(drawn, boxes_n4))

    def paint(self, drawing: Drawing, scene: ImageArray) -> None:
        """Paint the objects on the region of the picture: uint8 BGR (y1 - y0, x1 - x0, 3), changed in place."""
        x0, y0, x1, y1 = drawing.region
        masks_nhw = np.stack([each.mask[y0:y1, x0:x1] for each in drawing.objects])
        inside = scene[: masks_nhw.shape[1], : masks_nhw.shape[2]]  # without the row or column that evens an odd side
        detections = sv.Detections(
            xyxy=(drawing.boxes_xyxy_n4 - [x0, y0, x0, y0]).astype(np.float32),
            mask=masks_nhw,
            class_id=np.zeros(len(drawing.objects), dtype=int),
            tracker_id=np.array([each.object_id for each in drawing.objects]),
        )
        self._tint.annotate(inside, detections)
        self._outline.annotate(inside, detections)
        self._label.annotate(inside, detections, labels=[_text(each) for each in drawing.objects])

    def _region(self, drawn: Sequence[TrackedObject], boxes_n4: npt.NDArray[np.int_]) -> Region:
        sizes_n2 = np.array([self._label_size(each) for each in drawn])
        room_n2 = np.maximum(0, np.array([self._width, self._height]) - sizes_n2)
        # A label stands on its box's top left corner, but is moved into the picture and off other labels.
        labels_n2 = np.clip(boxes_n4[:, :2] - sizes_n2 * [0, 1], 0, room_n2)
        apart = sizes_n2.max(axis=0) if len(drawn) > 1 else 0
        low = np.minimum(boxes_n4[:, :2] - self._thickness, labels_n2 - apart).min(axis=0)
        high = np.maximum(boxes_n4[:, 2:] + self._thickness, labels_n2 + sizes_n2 + 1 + apart).max(axis=0)
        return grown_region((int(low[0]), int(low[1]), int(high[0]), int(high[1])), self._width, self._height)

    def _label_size(self, tracked: TrackedObject) -> tuple[int, int]:
        (width, height), _ = cv2.getTextSize(
            _text(tracked), cv2.FONT_HERSHEY_SIMPLEX, self._text_scale, self._text_thickness
        )
        return width + 2 * self._padding, height + 2 * self._padding


def _text(tracked: TrackedObject) -> str:
    score = round(tracked.score, SCORE_DECIMALS)  # as in a masks file, so that a resumed run draws the same
    return f"#{tracked.object_id} {tracked.label} {score:.2f}"
