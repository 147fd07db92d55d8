"""Small videos made on the spot, whose pixels say which frame they are, which way is up, and where the object is.

Every frame shows, in its displayed orientation: a red, green, blue and yellow square in the top left, top right, bottom
left and bottom right corner; the frame's number in black and white cells along the bottom edge; and an orange disc that
moves over a textured background, whose true mask `disc_mask` gives. Everything is a pure function of number and size.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import cv2
import numpy as np
from av.video.reformatter import ColorRange, Colorspace, VideoReformatter

from sam3_stream.core.records import ImageArray, MaskArray

Size = tuple[int, int]
NUMBER_BITS = 12
DISC_COLOR = (235, 140, 30)
CORNER_COLORS = {
    "top left": (220, 30, 30),
    "top right": (30, 200, 30),
    "bottom left": (30, 30, 220),
    "bottom right": (220, 220, 30),
}
VFR_STEPS_MS = (33, 34, 67, 33, 100, 17, 250)

_DEFAULT_CODECS = {".webm": "libvpx-vp9", ".gif": "gif", ".avi": "mjpeg"}
_DEFAULT_PIXEL_FORMATS = {"gif": "rgb8", "mjpeg": "yuvj420p", "ffv1": "yuv444p", "png": "rgb24"}
_NEAR_LOSSLESS: dict[str, dict[str, str]] = {
    "libx264": {"preset": "ultrafast", "qp": "0"},
    "libx265": {"preset": "ultrafast", "x265-params": "lossless=1:log-level=none:pools=1:frame-threads=1"},
    "libvpx-vp9": {"lossless": "1", "deadline": "realtime", "cpu-used": "8"},
    "mjpeg": {"qmin": "1", "qmax": "2"},
    "mpeg4": {"qmin": "1", "qmax": "2"},
    "mpeg2video": {"qmin": "1", "qmax": "2"},
}
_COLOR_SPACES = {"bt601": (Colorspace.ITU601, 6), "bt709": (Colorspace.ITU709, 1)}  # for swscale, for the header


def _corner(size: Size) -> int:
    return max(8, min(size) // 8)


def disc_center(number: int, size: Size) -> tuple[float, float]:
    """Centre of the disc in pixels: it crosses the picture in about 40 frames and bounces off the borders."""
    width, height = size
    radius, corner = disc_radius(size), _corner(size)

    def bounce(distance: float, low: float, high: float) -> float:
        span = high - low
        distance %= 2 * span
        return low + (distance if distance <= span else 2 * span - distance)

    x = bounce(number * width / 40, radius + 1, width - radius - 1)
    y = bounce(number * height / 60 + height / 5, radius + 1, height - corner - radius - 1)
    return x, y


def disc_radius(size: Size) -> float:
    """Radius of the disc in pixels."""
    return min(size) / 5


def disc_mask(number: int, size: Size) -> MaskArray:
    """The disc's true mask on frame `number`: bool (height, width)."""
    width, height = size
    x, y = disc_center(number, size)
    rows, columns = np.mgrid[:height, :width]
    return (columns + 0.5 - x) ** 2 + (rows + 0.5 - y) ** 2 <= disc_radius(size) ** 2


def draw_frame(number: int, size: Size) -> ImageArray:
    """Frame `number` in its displayed orientation: uint8 RGB (height, width, 3)."""
    width, height = size
    corner = _corner(size)
    texture = np.random.default_rng(7).integers(60, 130, (height // 8 + 1, width // 8 + 1, 1), dtype=np.uint8)
    image = np.repeat(np.repeat(texture, 8, axis=0), 8, axis=1)[:height, :width].repeat(3, axis=2)
    image[..., 2] += 40
    rows, columns = np.mgrid[:height, :width]
    x, y = disc_center(number, size)
    checks = (((columns - int(x)) // 8 + (rows - int(y)) // 8) % 2 == 0)[..., None]
    image = np.where(disc_mask(number, size)[..., None], np.where(checks, DISC_COLOR, (205, 110, 20)), image)
    image[height - corner :, corner : width - corner] = 0
    for bit, (left, right) in enumerate(_number_cells(size)):
        image[height - corner :, left:right] = 255 if number >> bit & 1 else 0
    image[:corner, :corner] = CORNER_COLORS["top left"]
    image[:corner, width - corner :] = CORNER_COLORS["top right"]
    image[height - corner :, :corner] = CORNER_COLORS["bottom left"]
    image[height - corner :, width - corner :] = CORNER_COLORS["bottom right"]
    return np.ascontiguousarray(image, dtype=np.uint8)


def _number_cells(size: Size) -> list[tuple[int, int]]:
    corner = _corner(size)
    edges = np.linspace(corner, size[0] - corner, NUMBER_BITS + 1).astype(int)
    return [(int(left), int(right)) for left, right in itertools.pairwise(edges)]


def read_number(image: ImageArray, size: Size | None = None) -> int:
    """The frame number that an upright picture shows; `size` is the clip's own size where the picture was scaled."""
    height, width = image.shape[:2]
    size = size or (width, height)
    row = round((size[1] - _corner(size) / 2) * height / size[1])
    middles = [round((left + right) / 2 * width / size[0]) for left, right in _number_cells(size)]
    return sum(1 << bit for bit, column in enumerate(middles) if image[row, column].mean() > 128)


def read_corners(image: ImageArray, size: Size | None = None) -> dict[str, tuple[int, int, int]]:
    """RGB in the middle of the four corner squares; `size` is the clip's own size where the picture was scaled."""
    height, width = image.shape[:2]
    inset = _corner(size or (width, height)) / 2
    x, y = (int(inset * width / size[0]), int(inset * height / size[1])) if size else (int(inset), int(inset))
    places = {
        "top left": image[y, x],
        "top right": image[y, width - 1 - x],
        "bottom left": image[height - 1 - y, x],
        "bottom right": image[height - 1 - y, width - 1 - x],
    }
    return {name: (int(pixel[0]), int(pixel[1]), int(pixel[2])) for name, pixel in places.items()}


def vfr_pts_ms(frames: int) -> list[int]:
    """Time stamps in milliseconds of a clip with ``vfr=True``."""
    steps = [VFR_STEPS_MS[index % len(VFR_STEPS_MS)] for index in range(frames - 1)]
    return [0, *np.cumsum(steps, dtype=int).tolist()]


def write_clip(
    path: Path,
    *,
    frames: int = 24,
    size: Size = (160, 120),
    fps: int | Fraction = 24,
    codec: str | None = None,
    pix_fmt: str | None = None,
    rotation: int = 0,
    mirrored: bool = False,
    audio: bool = False,
    vfr: bool = False,
    pts: Sequence[int] | None = None,
    time_base: Fraction | None = None,
    gop: int = 12,
    b_frames: int = 0,
    color_space: str | None = None,
    full_range: bool = False,
    sample_aspect_ratio: Fraction | None = None,
    codec_options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    draw: Callable[[int, Size], ImageArray] = draw_frame,
) -> Path:
    """Write a video of `draw_frame` pictures, lossless or nearly so, and return its path.

    Args:
        path: Where to; the suffix chooses the container, and the codec where `codec` is None.
        frames: How many frames, numbered from 0.
        size: (width, height) as displayed, in pixels.
        fps: Frame rate; also the rate in the header of a clip with `vfr` or `pts`.
        codec: FFmpeg's name of an encoder.
        pix_fmt: FFmpeg's name of a pixel format.
        rotation: Clockwise degrees that a player must turn the coded picture by, as phones record it.
        mirrored: Whether a player must also mirror the picture left to right, as front cameras record it.
        audio: Whether to add a 440 Hz tone of the clip's length.
        vfr: Variable frame rate: time stamps are `vfr_pts_ms`.
        pts: Time stamps in units of `time_base`, in display order.
        time_base: Unit of `pts`; milliseconds when None.
        gop: Largest distance between key frames.
        b_frames: How many B-frames between other frames.
        color_space: ``"bt601"`` or ``"bt709"`` to tag it; None leaves it untagged, and players go by the height.
        full_range: Whether luma spans 0 to 255 rather than 16 to 235.
        sample_aspect_ratio: Width of a coded pixel over its height, where it is not square.
        codec_options: Further options of the encoder.
        container_options: Options of the muxer.
        draw: What a frame shows, from its number and the size.
    """
    codec = codec or _DEFAULT_CODECS.get(path.suffix, "libx264")
    pix_fmt = pix_fmt or _DEFAULT_PIXEL_FORMATS.get(codec, "yuv420p")
    if vfr:
        pts, time_base = vfr_pts_ms(frames), Fraction(1, 1000)
    time_base = (time_base or Fraction(1, 1000)) if pts else Fraction(1) / Fraction(fps)
    with av.open(str(path), "w", options=dict(container_options or {})) as container:
        stream = container.add_stream(codec, rate=Fraction(fps))
        coded_size = size if rotation in (0, 180) else size[::-1]
        stream.width, stream.height = coded_size
        stream.pix_fmt = pix_fmt
        stream.codec_context.time_base = time_base
        stream.gop_size = gop
        stream.codec_context.max_b_frames = b_frames
        stream.codec_context.thread_count = 1
        stream.options = _NEAR_LOSSLESS.get(codec, {}) | _b_frame_options(codec, b_frames) | dict(codec_options or {})
        if sample_aspect_ratio:
            stream.codec_context.sample_aspect_ratio = sample_aspect_ratio
        if color_space:
            stream.codec_context.colorspace = _COLOR_SPACES[color_space][1]
        if pix_fmt.startswith("yuv"):
            is_full = full_range or pix_fmt.startswith("yuvj")
            stream.codec_context.color_range = ColorRange.JPEG if is_full else ColorRange.MPEG
        if rotation or mirrored:
            stream.set_display_rotation(-rotation, hflip=mirrored)
        tone = container.add_stream("aac", rate=48000) if audio else None
        reformatter = VideoReformatter()
        for number in range(frames):
            image = draw(number, size)
            image = np.ascontiguousarray(np.rot90(image[:, ::-1] if mirrored else image, rotation // 90))
            frame = _to_coded(reformatter, image, pix_fmt, color_space, full_range)
            frame.pts, frame.time_base = (pts[number] if pts else number), time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if tone is not None:
            last_s = float(pts[-1] * time_base) if pts else frames / float(fps)
            _write_tone(container, tone, last_s)
    return path


def _b_frame_options(codec: str, b_frames: int) -> dict[str, str]:
    if not b_frames:
        return {}
    # The fastest presets never choose B-frames by themselves; this makes the pattern fixed.
    # Nor does lossless x264, so these clips are nearly lossless only.
    return {"libx264": {"qp": "4", "x264-params": f"bframes={b_frames}:b-adapt=0:b-pyramid=normal"}}.get(codec, {})


def _to_coded(
    reformatter: VideoReformatter, image: ImageArray, pix_fmt: str, color_space: str | None, full_range: bool
) -> av.VideoFrame:
    frame = av.VideoFrame.from_ndarray(image, "rgb24")
    if not pix_fmt.startswith("yuv"):
        return reformatter.reformat(frame, format=pix_fmt)
    default = "bt709" if image.shape[0] >= 720 else "bt601"
    is_full = full_range or pix_fmt.startswith("yuvj")
    return reformatter.reformat(
        frame,
        format=pix_fmt,
        dst_colorspace=_COLOR_SPACES[color_space or ("bt601" if pix_fmt.startswith("yuvj") else default)][0],
        dst_color_range=ColorRange.JPEG if is_full else ColorRange.MPEG,
    )


def _write_tone(container: av.container.OutputContainer, stream: av.AudioStream, duration_s: float) -> None:
    times_s = np.arange(int(duration_s * 48000)) / 48000
    samples = (0.3 * np.sin(2 * np.pi * 440 * times_s)).astype(np.float32)
    for start in range(0, len(samples), 1024):
        frame = av.AudioFrame.from_ndarray(samples[None, start : start + 1024], format="fltp", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48000, start, Fraction(1, 48000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def write_images(
    folder: Path, *, frames: int = 8, size: Size = (160, 120), suffix: str = ".png", first: int = 0, digits: int = 5
) -> Path:
    """Write a folder of pictures ``00000.png``, ``00001.png``, … that show their numbers, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(first, first + frames):
        options = [cv2.IMWRITE_JPEG_QUALITY, 100] if suffix in (".jpg", ".jpeg") else []
        image = cv2.cvtColor(draw_frame(number, size), cv2.COLOR_RGB2BGR)
        if not cv2.imwrite(str(folder / f"{number:0{digits}d}{suffix}"), image, options):
            raise OSError(f"cannot write a {suffix} picture into {folder}")
    return folder


def write_tone(path: Path, duration_s: float = 1.0) -> Path:
    """Write a file that holds audio only."""
    with av.open(str(path), "w") as container:
        _write_tone(container, container.add_stream("aac", rate=48000), duration_s)
    return path
