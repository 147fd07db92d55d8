"""Fixtures of the integration tests."""

from __future__ import annotations

import pytest

from tests.support.command import Command


@pytest.fixture
def sam3_stream_command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Runs `sam3-stream` with arguments."""
    return Command(monkeypatch, capfd)
