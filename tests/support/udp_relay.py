"""A line between two WebRTC peers that is long and loses packets."""

from __future__ import annotations

import asyncio
import re
from random import Random


class UdpRelay:
    """Passes datagrams on between a peer that sends here first and one at a known port, late, and not all of them.

    Args:
        port: The other peer's, on 127.0.0.1.
        loss: Share of the datagrams that get lost, each way.
        delay_s: How long the rest take, each way.
    """

    def __init__(self, port: int, loss: float, delay_s: float) -> None:
        self._far = ("127.0.0.1", port)
        self._loss = loss
        self._delay_s = delay_s
        self._random = Random(5)
        self._near: tuple[str, int] | None = None
        self._sockets: list[asyncio.DatagramTransport] = []
        self.lost = 0
        self.passed = 0

    async def open(self) -> int:
        """Begin; the port that stands for the far peer's."""
        loop = asyncio.get_running_loop()
        for take in (self._from_near, self._from_far):
            socket, _ = await loop.create_datagram_endpoint(lambda take=take: _Taking(take), ("127.0.0.1", 0))
            self._sockets.append(socket)
        return int(self._sockets[0].get_extra_info("sockname")[1])

    def close(self) -> None:
        """Pass on no more."""
        for socket in self._sockets:
            socket.close()

    def _from_near(self, data: bytes, sender: tuple[str, int]) -> None:
        self._near = sender
        self._pass_on(1, data, self._far)

    def _from_far(self, data: bytes, _: tuple[str, int]) -> None:
        if self._near is not None:
            self._pass_on(0, data, self._near)

    def _pass_on(self, socket: int, data: bytes, to: tuple[str, int]) -> None:
        if self._random.random() < self._loss:
            self.lost += 1
            return
        self.passed += 1
        asyncio.get_running_loop().call_later(self._delay_s, self._send, socket, data, to)

    def _send(self, socket: int, data: bytes, to: tuple[str, int]) -> None:
        if not self._sockets[socket].is_closing():
            self._sockets[socket].sendto(data, to)


class _Taking(asyncio.DatagramProtocol):
    def __init__(self, take) -> None:
        self.datagram_received = take


_CANDIDATE = re.compile(r"^a=candidate:\S+ 1 udp \d+ \S+ (\d+) typ host", re.MULTILINE)


def port_in(sdp: str) -> int:
    """The port of an SDP's first host candidate."""
    found = _CANDIDATE.search(sdp)
    assert found is not None, sdp
    return int(found[1])


def with_candidate(sdp: str, port: int) -> str:
    """An SDP whose only candidate is a port on 127.0.0.1."""
    lines, given = [], False
    for line in sdp.splitlines():
        if not line.startswith("a=candidate:"):
            lines.append(line)
        elif not given:
            lines.append(f"a=candidate:1 1 udp 2130706431 127.0.0.1 {port} typ host")
            given = True
    return "\r\n".join(lines) + "\r\n"


def without_candidates(sdp: str) -> str:
    """An SDP that does not tell where its peer is, as of a peer that would tell later."""
    told = "a=candidate:", "a=end-of-candidates"
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith(told))
