"""A TCP proxy on loopback whose connections can be cut, and which can be kept from making new ones."""

from __future__ import annotations

import contextlib
import socket
import threading


class CuttableProxy:
    """Passes bytes between whoever connects and a port.

    Args:
        target_port: The port on 127.0.0.1 to pass them to.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        self._refusing = False
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def cut(self, *, stay_down: bool = False) -> None:
        """Cut every connection at once; with `stay_down`, refuse new ones until `heal`."""
        with self._lock:
            self._refusing = stay_down
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
            self._open.clear()

    def heal(self) -> None:
        self._refusing = False

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                client.close()
                continue
            self.connections += 1
            with self._lock:
                self._open += [client, server]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=_pass_on, args=pair, daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
