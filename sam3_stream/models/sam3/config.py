"""What a user may choose about the SAM 3 engine, with the checkpoint's own values as defaults."""

from __future__ import annotations

from dataclasses import dataclass

from sam3_stream.core.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackerOptions:
    """Options of a tracking session.

    Attributes:
        max_objects: Objects that one session has room for. All memory is set aside when the session opens: at full size
            (1008 px) about 8 MB an object.
        multimask_max_points: With so many clicks or fewer the decoder proposes three masks and the one with the best
            predicted IoU wins; with more it gives one mask. A box counts as two.
        mask_threshold: Logit above which a pixel belongs to the mask.
        hole_area: Holes up to this area are filled, in pixels of the decoder's mask grid (288x288 at full size).
        sprinkle_area: Specks up to this area, and up to half of the mask, are removed; same unit.
        smoothing_sigma: Standard deviation of a Gaussian over the mask logits, in pixels of that grid; 0 leaves them as
            they are.
        non_overlapping: Whether a pixel belongs to at most one object: the one with the highest logit.
    """

    max_objects: int = 64
    multimask_max_points: int = 1
    mask_threshold: float = 0.0
    hole_area: int = 16
    sprinkle_area: int = 16
    smoothing_sigma: float = 0.0
    non_overlapping: bool = True

    def __post_init__(self) -> None:
        if self.max_objects < 1:
            raise ConfigError(f"max_objects must be 1 or more, got {self.max_objects}")
        for name in ("multimask_max_points", "hole_area", "sprinkle_area", "smoothing_sigma"):
            if getattr(self, name) < 0:
                raise ConfigError(f"{name} must be 0 or more, got {getattr(self, name)}")


def check_resolution(resolution: int, patch_size: int) -> None:
    """Raise `ConfigError` unless the trunk can be run on a picture of this side.

    Multiples of 24 patches (336 px) are what the windows of the trunk fill exactly; others are padded inside.
    """
    if resolution < patch_size * 2 or resolution % patch_size:
        below = max(2, resolution // patch_size) * patch_size
        raise ConfigError(
            f"the resolution must be a multiple of the patch size, {patch_size} px, got {resolution}; "
            f"{below} or {below + patch_size} would do"
        )
