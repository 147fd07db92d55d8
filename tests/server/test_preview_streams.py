"""Streams that are added over the API: what may be opened, and what becomes of them when things go wrong."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import struct
import threading
import time
import zlib
from pathlib import Path

import av
import httpx
import numpy as np
from PIL import Image

from sam3_stream.config.preview import PreviewConfig
from tests.server.test_preview import CLICK, Served, config
from tests.support.clips import write_clip

__all__ = ["config"]  # a fixture
STREAMS = "/api/v1/streams"


def changed(config: PreviewConfig, **fields: object) -> PreviewConfig:
    return PreviewConfig.model_validate(config.model_dump(mode="json", exclude_unset=True) | fields)


def push(served: Served, name: str, count: int) -> None:
    pushed = served.service.preview_stream(name).pushed
    assert pushed is not None
    for _ in range(count):
        pushed.push(av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24"))
        time.sleep(0.05)


def picture(width: int, height: int) -> bytes:
    """A PNG of one colour that is small whatever its size."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + (width + 7) // 8)) for _ in range(height)) + packer.flush()
    chunks = (b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")
    packed = (
        struct.pack(">I", len(data)) + tag + data + struct.pack(">I", zlib.crc32(tag + data)) for tag, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def test_only_what_the_config_allows_is_opened(config, tmp_path, monkeypatch):
    monkeypatch.setenv("A_SECRET", "hunter2")
    media = tmp_path / "media"
    media.mkdir()
    (media / "out.mp4").symlink_to(tmp_path / "clip.mp4")
    served = Served(changed(config, sources={"hosts": ["127.0.0.1"], "media_folders": [str(media)]}))
    with httpx.Client(base_url=served.url) as client:
        for source, reason in [
            ({"type": "url", "url": "rtsp://10.0.0.1/a"}, "this host"),
            ({"type": "url", "url": "rtsp://127.0.0.1@10.0.0.1/a"}, "this host"),
            ({"type": "url", "url": "http://127.0.0.1/a"}, "expected one of"),
            ({"type": "url", "url": "file:///etc/passwd"}, "rtsp://"),
            ({"type": "url", "url": "/dev/video0"}, "expected one of"),
            ({"type": "url", "url": "rtsp://[::1"}, "address"),
            ({"type": "url", "url": "rtsp://127.0.0.1/${A_SECRET}"}, "write the value itself"),
            ({"type": "url", "url": "rtsp://127.0.0.1/a", "ca_file": "/etc/shadow"}, "ca_file"),
            ({"type": "file", "path": "/etc/passwd"}, "media folders"),
            ({"type": "file", "path": str(media / ".." / "clip.mp4")}, "media folders"),
            ({"type": "file", "path": str(media / "out.mp4")}, "media folders"),
            ({"type": "file", "path": "a\0b"}, "no path"),
        ]:
            said = client.post(STREAMS, json={"name": "a", "source": source})
            assert (said.status_code, reason in said.json()["detail"]) == (422, True), said.text
            assert "hunter2" not in said.text
    served.close()


def test_a_camera_is_added_by_its_address_and_its_password_is_not_shown(config):
    served = Served(changed(config, sources={"hosts": ["127.0.0.1"]}))
    with httpx.Client(base_url=served.url) as client:
        source = {"type": "url", "url": "rtsp://user:hunter2@127.0.0.1:9/a"}
        added = client.post(STREAMS, json={"name": "door", "source": source})
        assert (added.status_code, added.json()["kind"]) == (201, "live")
        assert "hunter2" not in added.text + client.get(STREAMS).text
        assert client.post(STREAMS, json={"name": "door", "source": source}).status_code == 409
        assert client.delete(f"{STREAMS}/door").status_code == 204
    served.close()


def test_there_are_never_more_streams_than_allowed(config):
    served = Served(changed(config, preview={"max_streams": 4}))

    async def add() -> list[int]:
        async with httpx.AsyncClient(base_url=served.url) as client:
            asked = (client.post(STREAMS, json={"name": f"s{n}", "source": {"type": "whip"}}) for n in range(12))
            return [each.status_code for each in await asyncio.gather(*asked)]

    assert sorted(asyncio.run(add())) == [201] * 3 + [409] * 9
    served.close()


def test_a_file_that_has_vanished_leaves_a_stream_that_can_be_restarted_and_removed(config, tmp_path):
    media = tmp_path / "media"
    media.mkdir()
    path = shutil.copy(tmp_path / "clip.mp4", media / "a.mp4")
    served = Served(changed(config, sources={"media_folders": [str(media)]}))
    with httpx.Client(base_url=served.url) as client:
        added = client.post(STREAMS, json={"name": "a", "source": {"type": "file", "path": str(path)}})
        assert added.status_code == 201
        kept = Path(path).read_bytes()
        Path(path).unlink()
        assert client.post(f"{STREAMS}/a/restart").status_code == 422
        assert [each["name"] for each in client.get(STREAMS).json()] == ["clip", "a"]
        Path(path).write_bytes(kept)
        assert client.post(f"{STREAMS}/a/restart").status_code == 200
        Path(path).unlink()
        assert client.post(f"{STREAMS}/a/restart").status_code == 422
        assert client.delete(f"{STREAMS}/a").status_code == 204
    served.close()


def test_a_prompt_that_nobody_waits_for_any_more_does_not_end_the_stream(config, monkeypatch):
    monkeypatch.setattr("sam3_stream.server.acknowledged._TIMEOUT_S", 0.5)
    served = Served(changed(config, streams=[{"name": "camera", "source": {"type": "whip"}}]))
    with httpx.Client(base_url=served.url) as client:
        push(served, "camera", 5)
        assert client.post(f"{STREAMS}/camera/prompts", json=CLICK).status_code == 504
        push(served, "camera", 5)
        assert client.get(f"{STREAMS}/camera").json()["state"] == "live"
        assert client.get(f"{STREAMS}/camera/objects").json() == [], "what was given up is not done"
    served.close()


def test_a_prompt_before_the_first_picture_takes_effect_on_it(config):
    served = Served(changed(config, streams=[{"name": "camera", "source": {"type": "whip"}}]))
    with httpx.Client(base_url=served.url) as client:
        later = threading.Timer(0.5, push, (served, "camera", 5))
        later.start()
        made = client.post(f"{STREAMS}/camera/prompts", json=CLICK, timeout=20)
        later.join()
        assert (made.status_code, made.json()["frame"]) == (201, 0)
    served.close()


def test_pictures_to_segment_are_bounded_before_they_are_decoded(config):
    served = Served(config)
    with httpx.Client(base_url=served.url) as client:

        def segment(image: bytes, prompts: object) -> httpx.Response:
            return client.post("/api/v1/segment", files={"image": image}, data={"prompts": json.dumps(prompts)})

        small = io.BytesIO()
        Image.new("RGB", (64, 48)).save(small, "JPEG")
        found = segment(small.getvalue(), [CLICK, CLICK | {"x": 50}])
        assert [each["rle"]["size"] for each in found.json()["objects"]] == [[48, 64]] * 2
        assert segment(picture(8000, 8000), [CLICK]).status_code == 413
        assert segment(picture(16000, 16000), [CLICK]).status_code == 413
        assert segment(picture(64, 48)[:40], [CLICK]).status_code == 422
        assert segment(small.getvalue(), [CLICK] * 201).status_code == 413
        assert segment(small.getvalue(), []).status_code == 422
    served.close()


def test_the_server_answers_while_a_step_of_the_model_takes_long(config, monkeypatch):
    began, go_on = threading.Event(), threading.Event()
    served = Served(config)
    step = served.service.model.encode

    def slow(*args: object) -> object:
        began.set()
        assert go_on.wait(20)
        return step(*args)

    monkeypatch.setattr(served.service.model, "encode", slow)
    assert began.wait(20)
    asked = threading.Thread(
        target=httpx.post, args=(f"{served.url}{STREAMS}/clip/prompts",), kwargs={"json": CLICK, "timeout": 30}
    )
    asked.start()
    with httpx.Client(base_url=served.url, timeout=5) as client:
        for path in ["/livez", STREAMS, f"{STREAMS}/clip/prompts"] * 20:
            assert client.get(path).status_code == 200
    assert asked.is_alive(), "the prompt waits for the model; nobody else does"
    go_on.set()
    asked.join()
    served.close()


def test_a_camera_that_never_came_is_no_failure(config, caplog):
    served = Served(changed(config, streams=[{"name": "camera", "source": {"type": "whip"}}]))
    served.close()
    assert caplog.messages == []


def test_another_model_can_be_chosen_of_those_that_the_config_names(tmp_path):
    clip = write_clip(tmp_path / "clip.mp4", frames=20)
    tree = {
        "streams": [{"name": "clip", "source": {"type": "file", "path": str(clip)}}],
        "model": {"name": "fake"},
        "other_models": [{"name": "lite"}, {"name": str(tmp_path)}],
    }
    served = Served(PreviewConfig.model_validate(tree))
    phrase = {"type": "text", "text": "dog"}
    with httpx.Client(base_url=f"{served.url}/api/v1", timeout=30) as client:
        assert client.get("/model").json()["choices"] == ["lite", str(tmp_path), "fake"]
        assert client.post("/streams/clip/prompts", json=phrase).status_code == 422, "the fake model knows no phrases"
        for refused, status in [
            ({"name": "sam3"}, 404),
            ({"name": str(tmp_path)}, 422),
            ({"name": "lite", "detect_interval": "4"}, 422),
            ({"name": "lite", "detect_interval": "soon"}, 422),
            ({"name": "fake", "association": {"new_score": 7}}, 422),
        ]:
            answer = client.patch("/model", json=refused)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        assert client.get("/model").json()["name"] == "fake"
        assert client.patch("/model", json={"name": "lite"}).json()["name"] == "lite"
        assert client.post("/streams/clip/prompts", json=phrase).status_code == 201
    served.close()
