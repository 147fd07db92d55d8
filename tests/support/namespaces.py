"""Two hosts on one machine: network namespaces joined by a cable that can be slowed down and cut."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest


class TwoHosts:
    """Namespaces `first` at 10.77.0.1 and `second` at 10.77.0.2. Skips the test where the machine does not allow it."""

    addresses = ("10.77.0.1", "10.77.0.2")

    def __init__(self) -> None:
        tag = uuid.uuid4().hex[:6]
        self.first, self.second = f"s3s-{tag}a", f"s3s-{tag}b"
        self._cables = (f"s3{tag}a", f"s3{tag}b")
        if os.geteuid() != 0 or shutil.which("ip") is None:
            pytest.skip("network namespaces need root and the ip command (iproute2)")
        if not self._ip("netns", "add", self.first):
            pytest.skip("this machine does not allow network namespaces")
        self._ip("netns", "add", self.second)
        if not self._ip("link", "add", self._cables[0], "type", "veth", "peer", "name", self._cables[1]):
            self.close()
            pytest.skip("this machine has no veth devices")
        for host, cable, address in zip((self.first, self.second), self._cables, self.addresses, strict=True):
            self._ip("link", "set", cable, "netns", host)
            self._ip("-n", host, "addr", "add", f"{address}/24", "dev", cable)
            self._ip("-n", host, "link", "set", cable, "up")
            self._ip("-n", host, "link", "set", "lo", "up")

    def start(self, host: str, config: Path, only: str) -> subprocess.Popen[str]:
        """Start ``sam3-stream run CONFIG --only GROUP`` on a host."""
        program = "from sam3_stream.cli import main; main()"
        command = ["ip", "netns", "exec", host, sys.executable, "-c", program]
        return subprocess.Popen(
            [*command, "run", str(config), "--only", only, "--quiet"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def slow_down(self, *netem: str) -> bool:
        """Delay and lose packets in both directions, as ``tc netem`` is told; False where the kernel cannot."""
        return all(
            self._run("ip", "netns", "exec", host, "tc", "qdisc", "add", "dev", cable, "root", "netem", *netem)
            for host, cable in zip((self.first, self.second), self._cables, strict=True)
        )

    def cut(self) -> None:
        """Cut the cable."""
        self._ip("-n", self.first, "link", "set", self._cables[0], "down")

    def heal(self) -> None:
        """Join the cable again."""
        self._ip("-n", self.first, "link", "set", self._cables[0], "up")

    def close(self) -> None:
        for host in (self.first, self.second):
            self._ip("netns", "del", host)

    def _ip(self, *arguments: str) -> bool:
        return self._run("ip", *arguments)

    def _run(self, *command: str) -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
