"""Several cameras, one model: each with its own prompts and sinks, and none disturbed by another."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import httpx
import pytest

from sam3_stream import LiveJobConfig, LiveService, PointPrompt, read_masks
from sam3_stream.config.live import StreamConfig
from sam3_stream.core.errors import UsageError
from sam3_stream.server.health import HealthServer, health_app
from tests.support.fault_proxy import FaultProxy
from tests.support.rtsp_server import Mount, RtspServer
from tests.support.watching import QUICK, wait_until


def stream(name: str, url: str, folder: Path, **changes: object) -> dict[str, object]:
    """The config of a stream whose masks go to files of two seconds."""
    return {
        "name": name,
        "source": {"url": url, **QUICK},
        "prompts": [{"type": "box", "x0": 10, "y0": 20, "x1": 40, "y1": 60, "name": name}],
        "sinks": [{"type": "segments", "content": "masks", "folder": str(folder / name), "segment_seconds": 2.0}],
        **changes,
    }


def service_of(*streams: dict[str, object]) -> LiveService:
    return LiveService(LiveJobConfig.model_validate({"streams": streams, "model": {"name": "fake"}}))


def report(service: LiveService, name: str):
    return service.stream(name).report()


def labels_and_ids(folder: Path) -> tuple[set[str], set[int], int]:
    """The labels and ids in the masks files of a stream, and how many frames they hold."""
    rows = [row for path in sorted(folder.iterdir()) for row in read_masks(path)]
    return (
        {each.label for row in rows for each in row.objects},
        {o.object_id for r in rows for o in r.objects},
        len(rows),
    )


@pytest.fixture
def cameras():
    mounts = [Mount(f"/cam{number}", fps=15) for number in range(3)]
    with RtspServer(mounts) as server:
        yield server


def test_each_stream_has_its_own_prompts_ids_and_files(cameras, tmp_path):
    with service_of(*(stream(f"cam{n}", cameras.url(f"/cam{n}"), tmp_path) for n in range(3))) as service:
        service.start()
        wait_until(lambda: all(each.frames_out > 40 for each in service.reports()))
        assert {each.state for each in service.reports()} == {"live"}
    for number in range(3):
        labels, ids, rows = labels_and_ids(tmp_path / f"cam{number}")
        assert labels == {f"cam{number}"}
        assert ids == {1}
        assert rows > 30
        assert len(list((tmp_path / f"cam{number}").iterdir())) >= 2
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("sam3_stream-")]


def test_a_camera_that_is_away_and_one_that_refuses_do_not_disturb_the_others(cameras, tmp_path):
    broken = [
        stream("away", "rtsp://127.0.0.1:9/cam", tmp_path),
        stream("wrong", cameras.url("/no-such-path"), tmp_path),
        stream("misfit", cameras.url("/cam1"), tmp_path, prompts=[{"type": "click", "x": 5000, "y": 1}]),
    ]
    with service_of(stream("good", cameras.url("/cam0"), tmp_path), *broken) as service:
        service.start()
        wait_until(lambda: report(service, "good").frames_out > 30)
        assert report(service, "away").state == "connecting"
        assert "connection refused" in report(service, "away").reason
        assert report(service, "wrong").state == "failed"
        assert "knows no such path" in report(service, "wrong").reason
        wait_until(lambda: report(service, "misfit").state == "failed")
        assert "outside the picture, which is 320x240" in report(service, "misfit").reason
        assert report(service, "good").dropped["source", "overflow"] < 10
        assert report(service, "good").fps_out == pytest.approx(15, rel=0.3)


def test_streams_are_added_and_removed_while_others_run(cameras, tmp_path):
    with service_of(stream("first", cameras.url("/cam0"), tmp_path)) as service:
        service.start()
        wait_until(lambda: report(service, "first").frames_out > 10)
        service.add(StreamConfig.model_validate(stream("second", cameras.url("/cam1"), tmp_path)))
        wait_until(lambda: report(service, "second").frames_out > 10)
        with pytest.raises(UsageError, match="there is a stream 'second' already"):
            service.add(StreamConfig.model_validate(stream("second", cameras.url("/cam1"), tmp_path / "b")))
        before = report(service, "first")
        service.remove("second")
        _, _, rows = labels_and_ids(tmp_path / "second")
        assert rows > 10, "removing a stream finishes its outputs"
        assert [each.name for each in service.reports()] == ["first"]
        wait_until(lambda: report(service, "first").frames_out > before.frames_out + 10)
        assert report(service, "first").source.connections == 1
        with pytest.raises(UsageError, match="there is no stream 'second'; there are: first"):
            service.remove("second")


def test_prompts_are_added_to_one_stream_while_it_runs(cameras, tmp_path):
    names = ("one", "two")
    with service_of(*(stream(name, cameras.url(f"/cam{n}"), tmp_path) for n, name in enumerate(names))) as service:
        service.start()
        wait_until(lambda: all(each.frames_out > 5 for each in service.reports()))
        service.stream("one").tracker.add(PointPrompt(x=100, y=100, name="cat")).result(5)
        wait_until(lambda: report(service, "one").objects == 2)
        assert report(service, "two").objects == 1


def test_ids_live_through_a_cut_and_a_reboot_of_the_same_size_and_start_anew_with_another(tmp_path):
    with RtspServer([Mount(fps=15)]) as server, FaultProxy(server.port) as proxy:
        with service_of(stream("cam", server.url(port=proxy.port), tmp_path)) as service:
            service.start()
            wait_until(lambda: report(service, "cam").frames_out > 10)
            proxy.cut()
            wait_until(lambda: report(service, "cam").source.connections == 2)
            server.kill()
            wait_until(lambda: report(service, "cam").state == "reconnecting")
            server.start()
            wait_until(lambda: report(service, "cam").source.connections == 3)
            assert report(service, "cam").restarts == 0
            server.kill()
            server.mounts = (Mount(fps=15, width=480, height=320),)
            server.start()
            wait_until(lambda: report(service, "cam").restarts == 1)
            count = report(service, "cam").frames_out
            wait_until(lambda: report(service, "cam").frames_out > count + 10)
        rows = [(path, row) for path in sorted((tmp_path / "cam").iterdir()) for row in read_masks(path)]
        sizes_and_ids = {(row.objects[0].mask.shape, row.objects[0].object_id) for _, row in rows}
        assert sizes_and_ids == {((240, 320), 1), ((320, 480), 2)}
        assert {row.objects[0].label for _, row in rows} == {"cam"}
        assert len({path for path, _ in rows}) >= 4, "each outage ends a file"


def test_health_and_metrics_say_how_each_stream_is(cameras, tmp_path):
    streams = [
        stream("good", cameras.url("/cam0"), tmp_path),
        stream("away", "rtsp://admin:secret-word@127.0.0.1:9/cam", tmp_path),
    ]
    with service_of(*streams) as service:
        app = health_app(service.reports, lambda: service.encoder_queue)
        with (
            HealthServer(app, "127.0.0.1", 0) as server,
            httpx.Client(base_url=f"http://127.0.0.1:{server.port}") as http,
        ):
            assert http.get("/livez").status_code == 200
            assert http.get("/readyz").status_code == 503
            service.start()
            wait_until(lambda: report(service, "good").frames_out > 30)
            assert http.get("/readyz").json() == {
                "status": "not ready",
                "streams": {"good": "live", "away": "connecting"},
            }
            described = http.get("/streams").json()
            metrics = http.get("/metrics").text
            service.remove("away")
            assert http.get("/readyz").status_code == 200
    assert described[0]["fps_out"] == pytest.approx(15, rel=0.4)
    assert "connection refused" in described[1]["reason"]
    values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in metrics.splitlines() if line[0] != "#"}
    assert values['sam3_stream_state{state="live",stream="good"}'] == 1
    assert values['sam3_stream_state{state="connecting",stream="away"}'] == 1
    assert values['sam3_stream_frames_out_total{stream="good"}'] > 30
    assert values['sam3_stream_fps_in{stream="good"}'] == pytest.approx(15, rel=0.4)
    assert values['sam3_stream_objects{stream="good"}'] == 1
    assert values['sam3_stream_model_width_pixels{stream="good"}'] == 320
    assert values['sam3_stream_age_seconds{stream="good"}'] < 1
    assert values['sam3_stream_reconnects_total{stream="good"}'] == 0
    assert 'sam3_stream_dropped_frames_total{place="source",reason="overflow",stream="good"}' in values
    assert 'sam3_stream_stage_seconds_total{stage="memory_tracker",stream="good"}' in values
    assert 'sam3_stream_queued_frames{place="encoder",stream=""}' in values
    assert values["process_resident_memory_bytes"] > 1e6
    assert "secret-word" not in metrics + str(described)


def test_a_stream_stopped_before_its_first_picture_ends_and_does_not_fail(tmp_path):
    with service_of(stream("away", "rtsp://127.0.0.1:9/cam", tmp_path)) as service:
        service.start()
        time.sleep(0.3)
        service.stop()
        assert service.wait(5)
        assert report(service, "away").state == "ended"
