"""Who is let in, and how much of the server one client can take from the others."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import httpx
import pytest

from sam3_stream.core.errors import ConfigError
from sam3_stream.server.access import Token, token_of
from tests.server.test_preview import CLICK, Served, config

__all__ = ["config"]  # a fixture
TOKEN = "a token that is long enough"
BEARER = {"authorization": f"Bearer {TOKEN}"}
HTML = {"accept": "text/html"}


@pytest.fixture
def guarded(config) -> Iterator[Served]:
    served = Served(config, Token(TOKEN))
    yield served
    served.close()


def connections(served: Served, count: int, request: str) -> list[socket.socket]:
    port = int(served.url.rpartition(":")[2])
    opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for each in opened:
        each.sendall(request.encode())
    time.sleep(0.5)
    return opened


def test_the_login_form_lets_browsers_say_where_they_come_from(guarded):
    form = httpx.get(f"{guarded.url}/", headers=HTML)
    assert "<form" in form.text
    assert form.headers["referrer-policy"] == "same-origin", "under no-referrer a form is posted with Origin: null"
    said = httpx.post(f"{guarded.url}/login", data={"token": TOKEN}, headers={"origin": guarded.url})
    assert said.status_code == 303
    assert {"httponly", "samesite=strict"} <= {each.strip().lower() for each in said.headers["set-cookie"].split(";")}


@pytest.mark.parametrize("path", ["/", "/login"])
def test_tokens_cannot_be_guessed_at_will(guarded, path):
    codes = [httpx.post(guarded.url + path, data={"token": f"guess {n}"}, headers=HTML).status_code for n in range(12)]
    assert 303 not in codes
    assert path == "/" or codes[-1] == 429
    said = httpx.post(guarded.url + path, data={"token": TOKEN}, headers=HTML)
    assert "set-cookie" not in said.headers


def test_a_token_file_that_holds_none_opens_to_nobody(tmp_path):
    secret, is_new = token_of(tmp_path / "state")
    assert is_new
    assert token_of(tmp_path / "state") == (secret, False)
    path = tmp_path / "state" / "token"
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("")
    with pytest.raises(ConfigError, match="delete it"):
        token_of(tmp_path / "state")


def test_strangers_cannot_fill_the_server(guarded):
    waiting = connections(guarded, 80, "POST /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
    assert httpx.get(f"{guarded.url}/api/v1/streams", headers=BEARER).status_code == 200
    for each in waiting:
        each.close()
    assert httpx.post(f"{guarded.url}/login", content=b"x" * 5000).status_code == 413


def test_listeners_do_not_take_the_place_of_requests(guarded):
    request = f"GET /api/v1/streams/clip/results HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    listening = connections(guarded, 64, request)
    assert httpx.get(f"{guarded.url}/livez").status_code == 200
    one_more = httpx.get(f"{guarded.url}/api/v1/streams/clip/results", headers=BEARER)
    assert (one_more.status_code, one_more.headers["retry-after"]) == (503, "10")
    for each in listening:
        each.close()


def test_bodies_and_paths_are_kept_within_bounds(guarded):
    with httpx.Client(base_url=guarded.url, headers=BEARER) as client:
        declared = client.post("/api/v1/segment", content=b"x" * ((16 << 20) + 1))
        chunked = client.post("/api/v1/segment", content=iter([b"x" * (1 << 20)] * 17))
        assert (declared.status_code, chunked.status_code) == (413, 413)
        for path in ("/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd"):
            assert client.get(path).status_code == 404
        assert client.delete("/api/v1/streams/clip", headers={"origin": "http://["}).status_code == 403


def test_a_thousand_requests_at_once_are_answered_or_told_to_come_back(guarded):
    request = f"GET /api/v1/streams HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\n"

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(guarded.url.rpartition(":")[2]))
        writer.write(f"{request}Connection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def ask_all() -> list[bytes]:
        return await asyncio.gather(*(ask() for _ in range(1000)))

    answers = asyncio.run(ask_all())
    assert {each[9:12] for each in answers} <= {b"200", b"503"}
    assert all(b"retry-after" in each for each in answers if each[9:12] == b"503")
    assert httpx.post(f"{guarded.url}/api/v1/streams/clip/prompts", json=CLICK, headers=BEARER).status_code == 201


def test_clients_whose_requests_do_not_come_are_cut(guarded, monkeypatch):
    monkeypatch.setattr("sam3_stream.server.serving._HEADERS_TIMEOUT_S", 0.3)
    monkeypatch.setattr("sam3_stream.server.access._BODY_TIMEOUT_S", 0.3)
    (without_end,) = connections(guarded, 1, "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    with without_end:
        without_end.settimeout(5)
        assert without_end.recv(100) == b""
    (without_body,) = connections(guarded, 1, "POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n")
    with without_body:
        without_body.settimeout(5)
        assert without_body.recv(100).startswith(b"HTTP/1.1 408")


def test_the_token_is_nowhere_in_what_is_served(guarded):
    with httpx.Client(base_url=guarded.url, headers=BEARER) as client:
        for path in ("/", "/api/v1/streams", "/metrics", "/readyz", "/openapi.json"):
            assert TOKEN not in client.get(path).text
