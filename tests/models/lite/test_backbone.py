import numpy as np
import pytest
from PIL import Image

from sam3_stream.models.lite.backbone import (
    BATCH_NORM_EPS,
    BLOCK_STRIDES,
    TAP_CHANNELS,
    TAP_STRIDES,
    TAPPED_BLOCKS,
    Backbone,
)
from sam3_stream.models.lite.weights import load_efficientnet_lite0


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    return Backbone(threads=1)


def test_taps_have_the_strides_and_channels_they_say(backbone):
    taps = backbone.taps(np.zeros((2, 96, 160, 3), np.uint8))
    expected = [(2, c, 96 // s, 160 // s) for c, s in zip(TAP_CHANNELS, TAP_STRIDES, strict=True)]
    assert [tap.shape for tap in taps] == expected
    assert backbone.class_logits(taps[-1]).shape == (2, 1000, 3, 5)


@pytest.mark.data
@pytest.mark.parametrize(("sequence", "imagenet_class"), [("blackswan", 100), ("camel", 354), ("cows", 345)])
def test_recognises_animals(backbone, davis_root, sequence, imagenet_class):
    """Black swan, Arabian camel and ox, with the usual preprocessing: 256 pixels high, the middle 224x224."""
    image = Image.open(davis_root / "JPEGImages" / sequence / "00000.jpg").convert("RGB")
    image = image.resize((round(image.width * 256 / image.height), 256), Image.Resampling.BICUBIC)
    left = (image.width - 224) // 2
    crop = np.asarray(image.crop((left, 16, left + 224, 240)))
    logits = backbone.class_logits(backbone.taps(crop[None])[-1])[0].mean(axis=(1, 2))
    probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert probabilities.argmax() == imagenet_class
    assert probabilities.max() > 0.7


def test_agrees_with_torch_and_tensorflow_padding(backbone):
    """Against the network written out with torch's own operators, batch-norm unfolded, padding by hand."""
    torch = pytest.importorskip("torch", reason="compares with torch's convolutions")
    functional = torch.nn.functional
    weights = {name: torch.from_numpy(array) for name, array in load_efficientnet_lite0().items()}

    def convolve(x, conv, norm, stride=1, relu6=True):
        kernel = weights[f"{conv}.weight"]
        size = kernel.shape[-1]
        height, width = (max((-(-side // stride) - 1) * stride + size - side, 0) for side in x.shape[-2:])
        x = functional.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))
        x = functional.conv2d(x, kernel, stride=stride, groups=len(kernel) if kernel.shape[1] == 1 else 1)
        moments = weights[f"{norm}.running_mean"], weights[f"{norm}.running_var"]
        x = functional.batch_norm(x, *moments, weights[f"{norm}.weight"], weights[f"{norm}.bias"], eps=BATCH_NORM_EPS)
        return functional.relu6(x) if relu6 else x

    pictures = np.random.default_rng(0).integers(0, 256, (1, 64, 96, 3), dtype=np.uint8)
    x = (torch.from_numpy(pictures).permute(0, 3, 1, 2).float() - 127) / 128
    x = convolve(x, "_conv_stem", "_bn0", stride=2)
    expected = []
    for index, stride in enumerate(BLOCK_STRIDES):
        name, y = f"_blocks.{index}", x
        if f"{name}._expand_conv.weight" in weights:
            y = convolve(y, f"{name}._expand_conv", f"{name}._bn0")
        y = convolve(y, f"{name}._depthwise_conv", f"{name}._bn1", stride)
        y = convolve(y, f"{name}._project_conv", f"{name}._bn2", relu6=False)
        x = x + y if x.shape == y.shape and stride == 1 else y
        if index in TAPPED_BLOCKS:
            expected.append(x.numpy())
    x = convolve(x, "_conv_head", "_bn1")
    logits = functional.conv2d(x, weights["_fc.weight"][:, :, None, None], weights["_fc.bias"]).numpy()
    taps = backbone.taps(pictures)
    for found, wanted in zip([*taps, backbone.class_logits(taps[-1])], [*expected, logits], strict=True):
        np.testing.assert_allclose(found, wanted, atol=2e-3, rtol=1e-3)
