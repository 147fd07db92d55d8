"""What rate control does can be watched from outside."""

from __future__ import annotations

import pytest

from sam3_stream.core.records import RateFacts
from sam3_stream.core.stream_status import SourceStatus, StreamReport

prometheus_client = pytest.importorskip("prometheus_client", reason="needs sam3-stream[server]")


def metrics_of(report: StreamReport) -> str:
    from sam3_stream.server.metrics import make_registry

    return prometheus_client.generate_latest(make_registry(lambda: [report], lambda: 0)).decode()


def test_setting_states_and_losses_are_metrics():
    report = StreamReport(
        "door",
        "live",
        "",
        SourceStatus("live"),
        rate=RateFacts((320, 192), tracked=1, of=4, reachable=False),
        rate_changes=3,
        states={"tracked": 10, "propagated": 30},
        dropped={("rate", "late"): 2},
    )
    lines = metrics_of(report).splitlines()
    assert 'sam3_stream_rate_model_share{stream="door"} 0.25' in lines
    assert 'sam3_stream_rate_reachable{stream="door"} 0.0' in lines
    assert 'sam3_stream_rate_changes_total{stream="door"} 3.0' in lines
    assert 'sam3_stream_frame_states_total{state="propagated",stream="door"} 30.0' in lines
    assert 'sam3_stream_dropped_frames_total{place="rate",reason="late",stream="door"} 2.0' in lines


def test_without_rate_control_there_is_no_setting():
    assert "rate_model_share{" not in metrics_of(StreamReport("door", "live", "", SourceStatus("live")))
