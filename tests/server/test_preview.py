"""The preview over real HTTP: streams, prompts, objects, and who is let in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from sam3_stream.build_preview import PreviewService
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.models.fake import FakeModel
from sam3_stream.server.access import Token
from sam3_stream.server.app import preview_app
from sam3_stream.server.serving import listen, make_server
from tests.support.clips import write_clip

TOKEN = "a secret"
CLICK = {"type": "click", "x": 20, "y": 15}


class Served:
    """A preview that is served in a thread."""

    def __init__(self, config: PreviewConfig, token: Token | None = None) -> None:
        self.service = PreviewService(config, FakeModel())
        self._socket = listen("127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._server = make_server(preview_app(self.service, config, hosts=("127.0.0.1",), token=token))
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[self._socket]))
        self.service.start()
        self._thread.start()
        while not self._server.started:
            time.sleep(0.01)

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()
        self.service.close()


@pytest.fixture
def config(tmp_path) -> PreviewConfig:
    clip = write_clip(tmp_path / "clip.mp4", frames=20)
    stream = {"name": "clip", "source": {"type": "file", "path": str(clip)}}
    return PreviewConfig.model_validate({"streams": [stream], "state_folder": str(tmp_path / "state")})


@pytest.fixture
def client(config) -> Iterator[httpx.Client]:
    served = Served(config)
    with httpx.Client(base_url=served.url) as client:
        yield client
    served.close()


def labels(client: httpx.Client) -> list[str]:
    return [each["label"] for each in client.get("/api/v1/streams/clip/objects").json()]


def test_objects_are_made_renamed_and_deleted_and_outlive_the_server(config):
    served = Served(config)
    with httpx.Client(base_url=served.url) as client:
        made = client.post("/api/v1/streams/clip/prompts", json=CLICK)
        assert (made.status_code, made.json()["object"]) == (201, 1)
        client.post("/api/v1/streams/clip/prompts", json=CLICK | {"x": 5, "name": "cat"})
        client.patch("/api/v1/streams/clip/objects/1", json={"label": "dog"})
        time.sleep(0.3)
        assert labels(client) == ["dog", "cat"]
        assert client.get("/api/v1/streams/clip/objects/1/mask.png").content.startswith(b"\x89PNG")
        assert client.delete("/api/v1/streams/clip/prompts/p2").status_code == 200
    served.close()
    served = Served(config)
    with httpx.Client(base_url=served.url) as client:
        assert client.post("/api/v1/streams/clip/prompts", json=CLICK).json()["object"] == 3, "no id is used again"
        assert labels(client)[0] == "dog"
    served.close()


def test_every_error_is_a_problem_document(client):
    for response, status in [
        (client.get("/api/v1/streams/other"), 404),
        (client.get("/api/v1/nothing"), 404),
        (client.put("/api/v1/streams"), 405),
        (client.post("/api/v1/streams/clip/prompts", json=CLICK | {"x": 5000}), 422),
        (client.post("/api/v1/streams/clip/prompts", json={"type": "circle"}), 422),
        (client.post("/api/v1/streams", json={"name": "a", "source": {"type": "file", "path": "/etc/passwd"}}), 422),
        (
            client.post("/api/v1/streams", json={"name": "a", "source": {"type": "url", "url": "rtsp://10.0.0.1/a"}}),
            422,
        ),
        (client.post("/whep/clip", content="v=0", headers={"content-type": "application/sdp"}), 422),
        (client.get("/livez", headers={"host": "evil.example"}), 403),
        (client.delete("/api/v1/streams/clip", headers={"origin": "http://evil.example"}), 403),
    ]:
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/problem+json"
        assert response.json()["detail"]


def test_without_the_token_nothing_is_served(config):
    served = Served(config, Token(TOKEN))
    with httpx.Client(base_url=served.url) as client:
        assert client.get("/api/v1/streams").status_code == 401
        assert client.get("/static/main.js").status_code == 401
        assert client.get("/api/v1/streams", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
        assert client.post("/login", data={"token": "wrong"}).status_code == 401
        assert client.post("/login", data={"token": TOKEN}).status_code == 303
        assert client.get("/api/v1/streams").status_code == 200, "by the cookie"
    served.close()
