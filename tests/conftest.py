"""Fixtures that every test may use, and the `--long` switch."""

from __future__ import annotations

from pathlib import Path

import pytest

# Tests with real servers, sockets and processes wait for others with a deadline, which a busy machine may miss; they
# get another try, and pytest counts and shows each.
_MEETS_THE_WORLD = (
    "tests/integration/",
    "tests/transport/",
    "tests/server/test_webrtc",
    "tests/stages/decoder/test_live",
    "test_push",
    "test_supervisor",
)

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the tests that take minutes to hours, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if any(part in str(item.path) for part in _MEETS_THE_WORLD):
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=2))
    if config.getoption("--long"):
        return
    skip_long = pytest.mark.skip(reason="takes long; runs with scripts/test --long")
    for item in items:
        if "long" in item.keywords:
            item.add_marker(skip_long)


@pytest.fixture(scope="session")
def davis_root() -> Path:
    """DAVIS 2016, ten sequences with ground truth: JPEGImages/<sequence>/*.jpg, Annotations/<sequence>/*.png."""
    root = SHARED_DATA / "davis"
    if not root.is_dir():
        pytest.skip(f"needs the DAVIS sequences in {root}, which are not part of the repository")
    return root


@pytest.fixture(scope="session")
def bedroom_video() -> Path:
    """A real video of a bedroom."""
    path = SHARED_DATA / "bedroom.mp4"
    if not path.is_file():
        pytest.skip(f"needs {path}, which is not part of the repository")
    return path
