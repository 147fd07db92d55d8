"""EfficientNet-Lite0 as two ONNX graphs: up to the taps, and from the last tap to the classifier.

Architecture: https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite (ReLU6, no
squeeze-and-excite, input (RGB - 127) / 128, batch-norm eps 1e-3). TensorFlow's "same" padding puts the odd pixel at the
bottom and the right, which is ONNX's ``SAME_UPPER``. Batch-norm is folded into the convolutions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from sam3_stream.core.records import ImageArray
from sam3_stream.models.lite.weights import StateDict, load_efficientnet_lite0

FloatArray = npt.NDArray[np.float32]

BATCH_NORM_EPS = 1e-3
BLOCK_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
TAPPED_BLOCKS = (2, 4, 10)
TAP_CHANNELS = (24, 40, 112)
TAP_STRIDES = (4, 8, 16)
CLASSIFIER_STRIDE = 32
INPUT_MULTIPLE = 32


class _GraphBuilder:
    """Adds the layers of the network, one after the other, to an ONNX graph."""

    def __init__(self, weights: StateDict) -> None:
        self._weights = weights
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.ArrayLike) -> str:
        self.constants.append(numpy_helper.from_array(np.array(value, np.float32), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def convolve(self, x: str, conv: str, norm: str, *, stride: int = 1, relu6: bool = True) -> str:
        """Convolution with folded batch-norm, then ReLU6."""
        kernel = self._weights[f"{conv}.weight"]
        gain = self._weights[f"{norm}.weight"] / np.sqrt(self._weights[f"{norm}.running_var"] + BATCH_NORM_EPS)
        bias = self._weights[f"{norm}.bias"] - self._weights[f"{norm}.running_mean"] * gain
        weight_name = self.constant(f"{conv}.weight", kernel * gain[:, None, None, None])
        bias_name = self.constant(f"{conv}.bias", bias)
        groups = len(kernel) if kernel.shape[1] == 1 else 1
        y = self.node(
            "Conv", (x, weight_name, bias_name), conv, auto_pad="SAME_UPPER", strides=[stride, stride], group=groups
        )
        return self.node("Clip", (y, "zero", "six"), f"{conv}.relu6") if relu6 else y

    def stem(self, pictures: str) -> str:
        """From uint8 (n, h, w, 3) RGB to the first convolution's output."""
        x = self.node("Cast", (pictures,), "pixels_nhwc", to=TensorProto.FLOAT)
        x = self.node("Transpose", (x,), "pixels_nchw", perm=[0, 3, 1, 2])
        x = self.node("Sub", (x, self.constant("mean", 127)), "centred")
        x = self.node("Mul", (x, self.constant("scale", 1 / 128)), "normalised")
        return self.convolve(x, "_conv_stem", "_bn0", stride=2)

    def block(self, x: str, index: int) -> str:
        """Inverted residual: expand, depthwise, project; the input is added where the shape allows."""
        name, stride = f"_blocks.{index}", BLOCK_STRIDES[index]
        y = x
        if f"{name}._expand_conv.weight" in self._weights:
            y = self.convolve(y, f"{name}._expand_conv", f"{name}._bn0")
        y = self.convolve(y, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        y = self.convolve(y, f"{name}._project_conv", f"{name}._bn2", relu6=False)
        expand = self._weights.get(f"{name}._expand_conv.weight", self._weights[f"{name}._depthwise_conv.weight"])
        channels_in = expand.shape[1] if expand.shape[1] > 1 else expand.shape[0]
        same_channels = channels_in == self._weights[f"{name}._project_conv.weight"].shape[0]
        return self.node("Add", (x, y), f"{name}.output") if stride == 1 and same_channels else y

    def session(self, inputs: list[onnx.ValueInfoProto], outputs: list[str], threads: int) -> ort.InferenceSession:
        self.constant("zero", 0)
        self.constant("six", 6)
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, "efficientnet_lite0", inputs, infos, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        # threads that spin between two frames would take the cores from every other stage
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


class Backbone:
    """Frozen ImageNet features.

    Args:
        threads: Threads of ONNX Runtime; 0 lets it take one a core.
    """

    def __init__(self, threads: int = 0) -> None:
        self._weights = load_efficientnet_lite0()
        self._threads = threads
        self._taps = self._build_taps()
        self._classifier: ort.InferenceSession | None = None

    def taps(self, pictures_nhwc: ImageArray) -> list[FloatArray]:
        """Features of a batch of pictures.

        Args:
            pictures_nhwc: uint8 RGB, height and width multiples of 32.

        Returns:
            float32 (n, channels, h / stride, w / stride) for each of `TAP_STRIDES`.
        """
        outputs: list[FloatArray] = self._taps.run(None, {"pictures": pictures_nhwc})
        return outputs

    def class_logits(self, last_tap_nchw: FloatArray) -> FloatArray:
        """The classifier applied at every place instead of to their mean: class activation maps.

        Global average pooling and the classifier are linear, so the mean over all places gives the picture's logits.

        Args:
            last_tap_nchw: The last of `taps`.

        Returns:
            float32 (n, 1000, h / 32, w / 32), ImageNet classes in their usual order.
        """
        if self._classifier is None:  # most streams never need it: it comes with the first box or phrase
            self._classifier = self._build_classifier()
        outputs: list[FloatArray] = self._classifier.run(None, {"last_tap": last_tap_nchw})
        return outputs[0]

    def _build_taps(self) -> ort.InferenceSession:
        builder = _GraphBuilder(self._weights)
        x = builder.stem("pictures")
        taps = []
        for index in range(TAPPED_BLOCKS[-1] + 1):
            x = builder.block(x, index)
            if index in TAPPED_BLOCKS:
                taps.append(x)
        pictures = helper.make_tensor_value_info("pictures", TensorProto.UINT8, ["n", "h", "w", 3])
        return builder.session([pictures], taps, self._threads)

    def _build_classifier(self) -> ort.InferenceSession:
        builder = _GraphBuilder(self._weights)
        x = "last_tap"
        for index in range(TAPPED_BLOCKS[-1] + 1, len(BLOCK_STRIDES)):
            x = builder.block(x, index)
        x = builder.convolve(x, "_conv_head", "_bn1")
        weight = builder.constant("fc.weight", self._weights["_fc.weight"][:, :, None, None])
        bias = builder.constant("fc.bias", self._weights["_fc.bias"])
        logits = builder.node("Conv", (x, weight, bias), "class_logits")
        last_tap = helper.make_tensor_value_info("last_tap", TensorProto.FLOAT, ["n", TAP_CHANNELS[-1], "h", "w"])
        return builder.session([last_tap], [logits], self._threads)
