"""Finding, checking and reading a checkpoint: what works offline, and what each failure says."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file

from sam3_stream.core.errors import ModelError
from sam3_stream.models.sam3 import load_sam3
from sam3_stream.models.sam3.weights import Checkpoint, locate
from tests.models.sam3.conftest import SaveCheckpoint, clicks, frame_of
from tests.support.sam3_checkpoints import moving_picture

Serve = Callable[[int, dict[str, str]], None]


@pytest.fixture
def folder(checkpoint: SaveCheckpoint, tmp_path: Path) -> Path:
    """A checkpoint that a test may damage."""
    return Path(shutil.copytree(checkpoint(), tmp_path / "checkpoint"))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    """A hub on this machine that answers everything with one status, and an empty cache."""
    answer: tuple[int, dict[str, str]] = (404, {})

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers = answer
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))

    def serve(status: int, headers: dict[str, str]) -> None:
        nonlocal answer
        answer = (status, headers)

    yield serve
    server.shutdown()
    thread.join()
    server.server_close()


def step_once(folder: Path) -> None:
    model = load_sam3(folder, device="cpu", max_objects=1)
    model.open_session(lambda: 1).step(model.encode([frame_of(moving_picture(0), 0)])[0], [clicks(1, (20, 20))])


def test_a_folder_is_enough_without_any_network(checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    step_once(checkpoint())


def test_the_environment_variable_says_where_the_weights_are(
    checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SAM3_STREAM_WEIGHTS", str(checkpoint()))
    assert locate(None) == checkpoint()


def test_the_safetensors_file_itself_may_be_named(checkpoint: SaveCheckpoint):
    assert locate(checkpoint() / "model.safetensors") == checkpoint()


def test_a_hub_id_whose_files_are_in_the_cache_needs_no_network(
    checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    snapshot = tmp_path / "models--someone--sam3" / "snapshots" / "0123"
    shutil.copytree(checkpoint(), snapshot)
    refs = tmp_path / "models--someone--sam3" / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    assert locate("someone/sam3") == snapshot


def test_a_gated_model_says_which_page_to_accept_and_which_variable_to_set(hub: Serve):
    hub(403, {"X-Error-Code": "GatedRepo", "X-Error-Message": "gated"})
    with pytest.raises(ModelError, match=r"accept it on https://huggingface.co/facebook/sam3 and set HF_TOKEN"):
        locate("facebook/sam3")


def test_an_unknown_model_says_so(hub: Serve):
    hub(404, {"X-Error-Code": "RepoNotFound"})
    with pytest.raises(ModelError, match="no model someone/nothing on the hub"):
        locate("someone/nothing")


def test_no_network_says_how_to_go_on_without(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"hub cannot be reached: .*SAM3_STREAM_WEIGHTS"):
        locate("facebook/sam3")


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "some/deep/folder"])
def test_a_folder_that_is_not_there_is_not_taken_for_a_hub_id(name: str):
    with pytest.raises(ModelError, match=f"no folder {name}"):
        locate(name)


def test_metas_own_format_is_named(folder: Path):
    (folder / "sam3.pt").write_bytes(b"PK")
    with pytest.raises(ModelError, match=r"sam3.pt is not a format .*model.safetensors"):
        locate(folder / "sam3.pt")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"no .safetensors file; the .pt file there is another format"):
        load_sam3(folder)


def test_a_folder_without_a_config_says_what_was_expected(tmp_path: Path):
    with pytest.raises(ModelError, match=r"holds no config.json: expected a folder with"):
        load_sam3(tmp_path)


def test_a_checkpoint_of_sam_2_is_recognised(folder: Path):
    (folder / "config.json").write_text(json.dumps({"model_type": "sam2_video"}))
    with pytest.raises(ModelError, match="holds SAM 2, another model, where SAM 3"):
        load_sam3(folder)


def test_a_broken_config_says_so(folder: Path):
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match=r"config.json cannot be read"):
        load_sam3(folder)


@pytest.mark.parametrize("keep", [0.5, 0.0001, 0])
def test_a_truncated_file_is_found_before_any_frame(folder: Path, keep: float):
    weights = folder / "model.safetensors"
    os.truncate(weights, int(weights.stat().st_size * keep))
    with pytest.raises(ModelError, match=r"is damaged or not whole .*download it again"):
        load_sam3(folder)


def test_a_missing_tensor_is_named(folder: Path):
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if name.endswith("no_memory_embedding"))
    del weights[name]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"holds no tensor tracker_model\.no_memory_embedding"):
        step_once(folder)


def test_a_tensor_of_another_shape_is_named(folder: Path):
    config = json.loads((folder / "config.json").read_text())
    config["tracker_config"]["mask_decoder_config"]["mlp_dim"] = 64
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=r"tensor tracker_model.mask_decoder\S+ has shape .* its config.json says"):
        step_once(folder)


def test_names_as_on_the_hub_and_as_saved_by_transformers_both_work(folder: Path):
    weights = load_file(folder / "model.safetensors")
    assert any(name.startswith("tracker_model.tracker_model.") for name in weights)
    as_on_hub = {
        name.replace("tracker_model.tracker_model.", "tracker_model."): value for name, value in weights.items()
    }
    save_file(as_on_hub, folder / "model.safetensors")
    step_once(folder)


def test_weights_in_several_files_are_read(folder: Path):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        save_file({name: weights[name] for name in part}, folder / f"model-0000{number}-of-00002.safetensors")
    step_once(folder)


def test_the_hash_is_checked(checkpoint: SaveCheckpoint):
    right = hashlib.sha256((checkpoint() / "model.safetensors").read_bytes()).hexdigest()
    load_sam3(checkpoint(), sha256=right.upper())
    with pytest.raises(ModelError, match=f"have SHA-256 {right}, expected 0000"):
        load_sam3(checkpoint(), sha256="0" * 64)


def test_only_what_tracking_needs_is_read(checkpoint: SaveCheckpoint, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    tensors = Checkpoint.tensors
    monkeypatch.setattr(Checkpoint, "tensors", lambda self, prefix: asked.append(prefix) or tensors(self, prefix))
    step_once(checkpoint())
    assert asked
    assert not any("text" in prefix or "detr" in prefix for prefix in asked)
    assert all(prefix.startswith(("detector_model.vision_encoder.backbone.", "tracker_")) for prefix in asked)


def test_without_pytorch_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from sam3_stream.core.errors import ModelError\n"
        "try:\n    import sam3_stream.models.sam3\n"
        "except ModelError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert "pip install 'sam3-stream[sam3]'" in done.stdout
