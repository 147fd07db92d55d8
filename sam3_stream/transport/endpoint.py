"""Addresses, and the sockets that belong to them: closed to strangers unless somebody opened them on purpose."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import zmq

from sam3_stream.core.errors import ConfigError, InputError, OutputError
from sam3_stream.transport.keys import KeyRing, stop_authenticating

_MAX_MESSAGE_BYTES = 1 << 30
_LINGER_MS = 500


@dataclass(frozen=True)
class Endpoint:
    """An address, and the keys that guard it.

    Attributes:
        address: ``ipc://PATH`` or ``tcp://HOST:PORT``.
        keys: CURVE keys; needed for any address that other machines reach.

    Raises:
        ConfigError: The address is none, or other machines reach it and there are no keys.
    """

    address: str
    keys: KeyRing | None = None

    def __post_init__(self) -> None:
        scheme, _, rest = self.address.partition("://")
        if scheme not in ("ipc", "tcp") or not rest or (scheme == "tcp" and ":" not in rest):
            raise ConfigError(f"the address {self.address!r} is none: expected ipc://PATH or tcp://HOST:PORT")
        if scheme == "tcp" and self.keys is None and not _is_loopback(self.address):
            raise ConfigError(
                f"other machines reach {self.address}, so it needs keys: make them with 'sam3-stream keys DIR' and "
                "name the folder in the config, or use ipc:// or tcp://127.0.0.1"
            )

    def bind(
        self, kind: int, max_waiting: int = 1000, context: zmq.Context[zmq.Socket[bytes]] | None = None
    ) -> zmq.Socket[bytes]:
        """A bound socket.

        Args:
            kind: Its type.
            max_waiting: How many messages may wait in it for each peer, in either direction; 0 for no limit.
            context: Whose socket it is; the process's own when None.

        Raises:
            OutputError: The address is taken or not this machine's.
        """
        socket = self._socket(kind, max_waiting, context or zmq.Context.instance())
        if self.keys is not None:
            self.keys.guard_server(socket)
        if self.address.startswith("ipc://"):
            Path(self.address.removeprefix("ipc://")).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            socket.bind(self.address)
        except zmq.ZMQError as error:
            socket.close()
            raise OutputError(f"cannot listen at {self.address}: {error.strerror.lower()}") from error
        return socket

    def connect(self, kind: int, max_waiting: int = 1000, *, only_when_connected: bool = False) -> zmq.Socket[bytes]:
        """A socket that connects, now or as soon as there is somebody to connect to, and again whenever it breaks.

        Args:
            kind: Its type.
            max_waiting: How many messages may wait in it, in either direction.
            only_when_connected: Nothing is kept to be sent later, while nobody is there.

        Raises:
            InputError: The address cannot be one.
        """
        socket = self._socket(kind, max_waiting, zmq.Context.instance())
        if self.keys is not None:
            self.keys.guard_client(socket)
        socket.setsockopt(zmq.IMMEDIATE, only_when_connected)
        try:
            socket.connect(self.address)
        except zmq.ZMQError as error:
            socket.close()
            raise InputError(f"cannot connect to {self.address}: {error.strerror.lower()}") from error
        return socket

    def _socket(self, kind: int, max_waiting: int, context: zmq.Context[zmq.Socket[bytes]]) -> zmq.Socket[bytes]:
        socket = context.socket(kind)
        socket.linger = _LINGER_MS
        socket.set_hwm(max_waiting)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_MESSAGE_BYTES)
        socket.setsockopt(zmq.IPV6, 1)
        socket.setsockopt(zmq.RECONNECT_IVL, 50)
        socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
        # A cut cable says nothing: without these a connection that is dead at one end lives on at the other.
        socket.setsockopt(zmq.CONNECT_TIMEOUT, 1000)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 1000)
        # A slow subscriber answers late, behind all that waits for it; that is no reason to cut it off.
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000 if kind in (zmq.PUB, zmq.SUB) else 3000)
        return socket


def end_sockets() -> None:
    """Before a process ends: wait until the last words have been sent, or half a second has passed.

    Every socket must have been closed.
    """
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    stop_authenticating(context)
    context.term()


def _is_loopback(address: str) -> bool:
    try:
        host = urlsplit(address).hostname or ""
    except ValueError:
        return False
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
