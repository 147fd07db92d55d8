"""SAM 3 on a stream that never ends: bounded memory, all objects of a stream in batches.

Built on the layers and weights of `transformers`' `Sam3VideoModel` but not on its inference sessions, which keep every
frame and every output for ever. Reference: `transformers/models/sam3_tracker_video/modeling_sam3_tracker_video.py`;
paper: "SAM 3: Segment Anything with Concepts", https://arxiv.org/abs/2511.16719.
"""

from sam3_stream.core.errors import ModelError

try:
    import torch  # noqa: F401
    import transformers  # noqa: F401
except ImportError as error:
    raise ModelError(
        f"the SAM 3 model needs PyTorch and transformers, and {error.name} is not installed; "
        "run: pip install 'sam3-stream[sam3]'"
    ) from error

from sam3_stream.models.sam3.config import TrackerOptions
from sam3_stream.models.sam3.model import Sam3Model, load_sam3

__all__ = ["Sam3Model", "TrackerOptions", "load_sam3"]
