"""One thread that owns a socket, because no socket may be used by two."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import zmq

MAX_MESSAGES_A_TURN = 64


class SocketThread:
    """Runs a handler for every message of a socket, and another whenever somebody wakes it or time passes.

    Args:
        name: For the thread's name.
        zmq_socket: The socket; closed when the thread ends.
        on_message: Called with the parts of each message.
        on_turn: Called after messages, after `wake`, and every ``tick_s`` seconds. It may send.
        tick_s: Seconds.
    """

    def __init__(
        self,
        name: str,
        zmq_socket: zmq.Socket[bytes],
        on_message: Callable[[list[zmq.Frame]], None],
        on_turn: Callable[[], None],
        tick_s: float,
    ) -> None:
        self.socket = zmq_socket
        self._on_message = on_message
        self._on_turn = on_turn
        self._tick_ms = max(1, int(tick_s * 1000))
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self._woken = False
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"sam3_stream-{name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def wake(self) -> None:
        """Have `on_turn` called soon; from any thread."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(BlockingIOError, OSError):
                self._wake_out.send(b"\0")

    def stop(self) -> None:
        """End the thread and close the socket. Safe to call twice."""
        self._stopping = True
        self.wake()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        poller = zmq.Poller()
        poller.register(self.socket, zmq.POLLIN)
        poller.register(self._wake_in, zmq.POLLIN)
        try:
            while not self._stopping:
                ready = dict(poller.poll(self._tick_ms))
                if self._wake_in.fileno() in ready:
                    # Cleared before the work is looked at, so that what is asked for meanwhile wakes it again.
                    self._wake_in.recv(4096)
                    self._woken = False
                if self.socket in ready:
                    self._receive()
                self._on_turn()
        finally:
            self.socket.close()
            self._wake_in.close()
            self._wake_out.close()

    def _receive(self) -> None:
        for _ in range(MAX_MESSAGES_A_TURN):
            try:
                parts = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            self._on_message(parts)
