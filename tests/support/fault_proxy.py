"""A TCP proxy that does to a camera's connection what networks do: stall, cut, delay, throttle, corrupt."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from types import TracebackType


class FaultProxy:
    """Forwards a free loopback port to another one. Faults touch what flows from server to client.

    Set the attributes at any time, from any thread; they hold for present and future connections.

    Args:
        target_port: The server's port on 127.0.0.1.

    Attributes:
        stalled: Let nothing through, keep the connections open.
        refusing: Cut every new connection at once.
        delay_s: Hold every piece back so long.
        bytes_per_s: Let no more than this through; None for no limit.
        corrupt_rate: Fraction of bytes that are overwritten with random ones.
    """

    def __init__(self, target_port: int, *, seed: int = 0) -> None:
        self.target_port = target_port
        self.port = 0
        self.connections = 0
        self.heal()
        self._random = random.Random(seed)
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)

    def heal(self) -> None:
        """End every fault."""
        self.stalled = False
        self.refusing = False
        self.delay_s = 0.0
        self.bytes_per_s: float | None = None
        self.corrupt_rate = 0.0

    def cut(self) -> None:
        """Break every open connection."""
        self._loop.call_soon_threadsafe(self._cut)

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stalled = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        self._cut()
        self._loop.run_until_complete(self._end_tasks())
        self._loop.close()

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(client_writer)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            if not self.refusing:
                await self._join(client_reader, client_writer)
        client_writer.transport.abort()
        self._writers.discard(client_writer)

    async def _join(self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        try:
            pumps = [
                asyncio.ensure_future(self._pump(client_reader, server_writer, faulty=False)),
                asyncio.ensure_future(self._pump(server_reader, client_writer, faulty=True)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        finally:
            server_writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, faulty: bool) -> None:
        while data := await reader.read(4096):
            if faulty:
                data = await self._harm(data)
            writer.write(data)
            await writer.drain()

    async def _harm(self, data: bytes) -> bytes:
        while self.stalled:
            await asyncio.sleep(0.02)
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        if self.bytes_per_s is not None:
            await asyncio.sleep(len(data) / self.bytes_per_s)
        if not self.corrupt_rate:
            return data
        harmed = bytearray(data)
        for _ in range(round(len(data) * self.corrupt_rate + self._random.random() - 0.5)):
            harmed[self._random.randrange(len(harmed))] = self._random.randrange(256)
        return bytes(harmed)
