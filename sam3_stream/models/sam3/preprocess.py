"""From a decoded picture to what the trunk sees, as the reference's image processor does it, on the device."""

from __future__ import annotations

import torch
from torchvision.transforms.v2.functional import InterpolationMode, resize

from sam3_stream.core.records import Picture

_MEAN = _STD = 127.5  # of 0 to 255, for each channel: -1 to 1


def to_pixels(picture: Picture, resolution: int, device: torch.device) -> torch.Tensor:
    """Scale a picture to a square and normalise it.

    The sides are scaled apart, so that the picture fills the square; bilinear with antialiasing, rounded to 8 bits, as
    `Sam3ImageProcessor` does.

    Returns:
        float32 (3, resolution, resolution), RGB, -1 to 1.
    """
    rgb_hwc = torch.from_numpy(picture.to_ndarray("rgb24")).to(device)
    scaled_chw = resize(rgb_hwc.permute(2, 0, 1), [resolution, resolution], InterpolationMode.BILINEAR, antialias=True)
    pixels: torch.Tensor = (scaled_chw.to(torch.float32) - _MEAN) / _STD
    return pixels
