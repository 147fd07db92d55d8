"""Live means live: however slow the model, what comes out is as old as the model is slow, and no older."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import pytest

from sam3_stream.build_live import LiveStream
from sam3_stream.config.live import StreamConfig
from sam3_stream.runtime.fair_batcher import FairBatcher
from sam3_stream.runtime.service import StreamService
from tests.support.ages import AgeSink, BarePyAv
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.slow_model import SlowModel
from tests.support.watching import QUICK, wait_until

FRAME_S = 1 / 25
MODEL_STEP_S = 10 * FRAME_S
# What threads of a busy machine wait for their turn. One frame in a queue would cost ten times that: a model step.
SCHEDULING_S = MODEL_STEP_S / 4


def config_of(url: str, folder: Path) -> StreamConfig:
    return StreamConfig.model_validate(
        {
            "name": "cam",
            "source": {"url": url, **QUICK},
            "prompts": [{"type": "click", "x": 50, "y": 50}],
            "sinks": [{"type": "segments", "content": "masks", "folder": str(folder), "min_free_bytes": 0}],
        }
    )


class Running:
    """A stream with this model, until the end of the ``with`` block."""

    def __init__(self, url: str, folder: Path, model: SlowModel) -> None:
        self.ages = AgeSink()
        self._service: StreamService[LiveStream] = StreamService()
        self._batcher = FairBatcher(model.encode)
        self.stream = LiveStream(config_of(url, folder), model, self._batcher, extra_sinks=(self.ages,))

    def __enter__(self) -> Running:
        self._service.add(self.stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._service.stop()
        self._service.wait()
        self._batcher.close()


@pytest.mark.parametrize(("encode_share", "step_share"), [(0.5, 0.5), (0.9, 0.1), (0.1, 0.9)])
def test_a_model_ten_times_too_slow_does_not_make_a_queue(tmp_path, encode_share, step_share):
    model = SlowModel(MODEL_STEP_S * encode_share, MODEL_STEP_S * step_share)
    with (
        RtspServer([Mount()]) as server,
        BarePyAv(server.url()) as bare,
        Running(server.url(), tmp_path / "masks", model) as running,
    ):
        ages_s = running.ages.ages_s
        wait_until(lambda: len(ages_s) >= 12, 20)
        report = running.stream.report()
    bare_s = statistics.median(age for _, age in bare.ages_s[-100:])
    extra_s = [age - bare_s for _, age in ages_s[2:]]
    assert statistics.median(extra_s) < FRAME_S + MODEL_STEP_S + 0.02
    assert max(extra_s) < FRAME_S + MODEL_STEP_S + SCHEDULING_S
    assert report.fps_out == pytest.approx(1 / MODEL_STEP_S, rel=0.3)
    assert report.dropped["source", "overflow"] > 6 * report.frames_out, "nine of ten pictures are dropped, and counted"


@pytest.mark.long
@pytest.mark.timeout(700)
def test_it_is_as_live_at_minute_10_as_at_minute_1(tmp_path):
    model = SlowModel(MODEL_STEP_S / 2, MODEL_STEP_S / 2)
    with (
        RtspServer([Mount()]) as server,
        BarePyAv(server.url()) as bare,
        Running(server.url(), tmp_path / "masks", model) as running,
    ):
        started_s = time.monotonic()
        time.sleep(605)
    for minute in (1, 10):
        window = (started_s + 60 * minute - 30, started_s + 60 * minute)
        bare_s = statistics.median(age for at_s, age in bare.ages_s if window[0] < at_s < window[1])
        extra_s = [age - bare_s for at_s, age in running.ages.ages_s if window[0] < at_s < window[1]]
        assert statistics.median(extra_s) < FRAME_S + MODEL_STEP_S + 0.02, f"minute {minute}"
