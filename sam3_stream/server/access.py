"""Who may ask what: host names, origins, tokens, sizes and numbers, before any route is reached."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from typing import Any

from sam3_stream.core.clock import Clock, SystemClock
from sam3_stream.core.errors import ConfigError
from sam3_stream.server.problems import problem

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "sam3_stream_session"
LOGIN_PATH = "/login"
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_OPEN_PATHS = (LOGIN_PATH, "/livez")
_LOGIN_STYLE = "/static/login.css"
_BODY_TIMEOUT_S = 15.0
_ENDLESS = "/results"  # server-sent events, which have a limit of their own
_STRANGERS, _STRANGERS_BODY_BYTES = 16, 4096  # requests without the token: a log-in is small
_LEAST_TOKEN = 16  # characters
_LOGINS, _LOGIN_SPAN_S = 10, 60.0
_POLICY = b"content-security-policy"
_HEADERS = (
    (
        _POLICY,
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
        b"media-src 'self' blob: mediastream:; manifest-src 'self'; base-uri 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(self), microphone=(), geolocation=()"),
)
# FastAPI's own documentation page takes its parts from a CDN.
_DOCS_POLICY = (
    b"default-src 'none'; script-src 'unsafe-inline' https://cdn.jsdelivr.net; style-src https://cdn.jsdelivr.net; "
    b"img-src data: https://fastapi.tiangolo.com; connect-src 'self'; frame-ancestors 'none'"
)


class Token:
    """The secret that opens the server to others than this machine.

    Args:
        secret: What a person or program must show.
    """

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()
        self.session = hmac.new(self._secret, b"session", hashlib.sha256).hexdigest()

    def opens(self, shown: str) -> bool:
        """Whether this is the secret."""
        return hmac.compare_digest(shown.encode(), self._secret)

    def opens_session(self, shown: str) -> bool:
        """Whether this is the cookie that the secret was exchanged for."""
        return hmac.compare_digest(shown.encode(), self.session.encode())


def token_of(folder: Path) -> tuple[str, bool]:
    """The token that is kept in a folder, made if there is none; and whether it is new, and to be shown once.

    Raises:
        ConfigError: The file holds none that would keep anybody out, as when a disk was full.
    """
    path = folder / "token"
    try:
        kept = path.read_text().strip()
        if len(kept) < _LEAST_TOKEN:
            raise ConfigError(f"{path} holds no token of {_LEAST_TOKEN} characters or more; delete it to get a new one")
        return kept, False
    except FileNotFoundError:
        secret = secrets.token_urlsafe(24)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secret + "\n")
        return secret, True


class Access:
    """Stands before an application and lets through what may pass.

    Args:
        app: The application.
        hosts: Names in the Host header under which the server is known: others are DNS rebinding.
        token: What others than this machine must show; None when it listens on loopback only.
        max_requests: Requests under way at a time.
        max_body_bytes: Largest body.
        clock: The machine's own when None.
    """

    def __init__(
        self,
        app: App,
        *,
        hosts: Iterable[str],
        token: Token | None,
        max_requests: int,
        max_body_bytes: int,
        clock: Clock | None = None,
    ) -> None:
        self._app = app
        self._clock = clock or SystemClock()
        self._hosts = {host.lower() for host in hosts}
        self._token = token
        self._max_requests = max_requests
        self._max_body_bytes = max_body_bytes
        self._under_way = {True: 0, False: 0}  # of those who are known, and of strangers
        self._logins: list[float] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send, scope["path"])
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        known = self._token is None or self._is_known(self._token, headers)
        most, most_bytes = (self._max_requests, self._max_body_bytes) if known else (_STRANGERS, _STRANGERS_BODY_BYTES)
        refusal = self._refusal(scope, headers, known, most_bytes)
        counts = not scope["path"].endswith(_ENDLESS)
        if refusal is None and counts and self._under_way[known] >= most:
            refusal = problem(503, f"{most} requests are under way; come back in a second", {"Retry-After": "1"})
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        self._under_way[known] += counts
        try:
            await self._pass_on(scope, receive, send, most_bytes)
        finally:
            self._under_way[known] -= counts

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send, most_bytes: int) -> None:
        """Wait for the whole body, so that no route has to wait for a slow client."""
        try:
            body = await asyncio.wait_for(_body_of(receive, most_bytes), _BODY_TIMEOUT_S)
        except TimeoutError:
            await problem(408, f"the body did not come within {_BODY_TIMEOUT_S:g} s")(scope, receive, send)
            return
        if body is None:
            await problem(413, f"the body is larger than {most_bytes} bytes")(scope, receive, send)
        else:
            await self._app(scope, _replayed(body, receive), send)

    def _refusal(self, scope: Scope, headers: dict[str, str], known: bool, most_bytes: int) -> Any:
        """Why a request may not pass, as a response; None when it may."""
        path, method = scope["path"], scope["method"]
        host = headers.get("host", "")
        if _name_of(host) not in self._hosts:
            return problem(403, f"this server is not known as {host[:100]!r}; add it to allowed_hosts if it should be")
        origin = headers.get("origin")
        if method not in _SAFE_METHODS and origin is not None and origin.partition("://")[2].lower() != host.lower():
            return problem(403, f"a page of {origin[:100]} may not change anything here")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > 18 or int(length) > most_bytes:
            return problem(413, f"the body is {length[:20]} bytes; {most_bytes} are allowed")
        if path == LOGIN_PATH and method == "POST" and not self._may_log_in():
            return problem(429, "too many attempts to log in; wait a minute", {"Retry-After": "60"})
        if known or path in (*_OPEN_PATHS, _LOGIN_STYLE):
            return None
        if path == "/" and method == "GET" and "text/html" in headers.get("accept", ""):
            scope["path"], scope["raw_path"] = LOGIN_PATH, LOGIN_PATH.encode()
            return None
        told = {"WWW-Authenticate": "Bearer"}
        return problem(401, "a token is needed: send it as 'Authorization: Bearer TOKEN', or log in on the page", told)

    def _is_known(self, token: Token, headers: dict[str, str]) -> bool:
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and token.opens(shown.strip()):
            return True
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and token.opens_session(cookie.value)

    def _may_log_in(self) -> bool:
        now_s = self._clock.monotonic_s()
        self._logins = [at_s for at_s in self._logins if now_s - at_s < _LOGIN_SPAN_S]
        self._logins.append(now_s)
        return len(self._logins) <= _LOGINS


async def _body_of(receive: Receive, most_bytes: int) -> bytes | None:
    """A request's whole body; None when it is too large, or the client has gone before its end."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > most_bytes:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body at once, and then what comes behind it."""
    given = False

    async def receive_again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


def _name_of(host: str) -> str:
    """The host's name without its port, in small letters."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host


def _with_headers(send: Send, path: str) -> Send:
    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            added = [each for each in _HEADERS if each[0] not in present]
            if path == "/docs":
                added = [(name, _DOCS_POLICY if name == _POLICY else value) for name, value in added]
            message["headers"] = [*message["headers"], *added]
        await send(message)

    return send_with_headers
