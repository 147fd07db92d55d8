"""What a person reads when a camera cannot be had: one line, the cause, what to do, and never the password."""

from __future__ import annotations

import logging
import socket
import subprocess

import pytest
from pydantic import ValidationError

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.errors import StreamError
from sam3_stream.stages.decoder.live import LiveDecoder
from tests.support.rtsp_server import Mount, RtspServer

SECRET = "p%40ss%2Fw0rd"  # p@ss/w0rd, as an address carries it


@pytest.fixture(scope="module")
def guarded():
    with RtspServer([Mount("/cam0"), Mount("/odd", codec="unknown")], user="admin", password="p@ss/w0rd") as server:
        yield server


def failure(url: str, caplog: pytest.LogCaptureFixture, **options: object) -> str:
    """The message with which a stream fails; sees to it that the password is in no message and no log line."""
    caplog.set_level(logging.DEBUG)
    config = LiveSourceConfig.model_validate({"url": url, "max_attempts": 1, "connect_timeout_s": 2.0, **options})
    decoder = LiveDecoder(config, "cam")
    with pytest.raises(StreamError) as raised:
        _ = decoder.info
    everything = f"{raised.value!r} {caplog.text} {decoder.status} {config} {raised.value.__cause__!r}"
    assert raised.value.__context__ is None or raised.value.__suppress_context__
    for secret in (SECRET, "p@ss", "wrong-secret", "admin"):
        assert secret not in everything
    assert decoder.status.state == "failed"
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_the_right_password_opens_the_stream(guarded):
    decoder = LiveDecoder(LiveSourceConfig(url=guarded.url(login=f"admin:{SECRET}")), "cam")
    assert decoder.info.width == 320
    decoder.close()


def test_a_wrong_password(guarded, caplog):
    message = failure(guarded.url(login="admin:wrong-secret"), caplog, max_attempts=None)
    assert f"rtsp://***@127.0.0.1:{guarded.port}/cam0 refused the user name or password" in message


def test_an_unknown_path(guarded, caplog):
    message = failure(guarded.url("/nowhere", login=f"admin:{SECRET}"), caplog, max_attempts=None)
    assert "/nowhere: the server knows no such path" in message


def test_a_codec_that_nothing_decodes(guarded, caplog):
    message = failure(guarded.url("/odd", login=f"admin:{SECRET}"), caplog, max_attempts=None)
    assert "no video stream" in message


def test_a_refused_connection(caplog):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    message = failure(f"rtsp://admin:{SECRET}@127.0.0.1:{port}/cam0", caplog)
    assert message == (
        f"rtsp://***@127.0.0.1:{port}/cam0: connection refused, nothing listens on port {port}; is the camera on?"
    )


@pytest.mark.parametrize("scheme", ["rtsp", "rtmp", "http"])
def test_a_server_that_takes_the_connection_and_says_nothing(scheme, caplog):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        message = failure(f"{scheme}://admin:{SECRET}@127.0.0.1:{silent.getsockname()[1]}/live/cam0", caplog)
    assert "takes connections, but gives no" in message or "no connection within 2 s" in message


def test_an_unknown_host(caplog):
    message = failure(f"rtsp://admin:{SECRET}@no-such-camera.invalid/cam0", caplog)
    assert "the host name no-such-camera.invalid is unknown" in message


def test_a_certificate_that_cannot_be_verified_is_refused_unless_it_is_trusted(tmp_path, caplog):
    pem = tmp_path / "camera.pem"
    request = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=camera -addext subjectAltName=IP:127.0.0.1"
    command = [*request.split(), "-keyout", pem, "-out", tmp_path / "certificate.pem"]
    subprocess.run(command, check=True, capture_output=True)
    pem.write_text(pem.read_text() + (tmp_path / "certificate.pem").read_text())
    with RtspServer(certificate=pem) as server:
        message = failure(server.url(), caplog)
        assert "the certificate cannot be verified" in message
        assert "ca_file" in message
        for trust in ({"ca_file": tmp_path / "certificate.pem"}, {"verify_tls": False}):
            decoder = LiveDecoder(LiveSourceConfig.model_validate({"url": server.url(), **trust}), "cam")
            assert decoder.info.width == 320
            decoder.close()


def test_attempts_are_counted_and_the_last_reason_is_given(caplog):
    message = failure("rtsp://127.0.0.1:9/cam", caplog, max_attempts=3, backoff_initial_s=0.05)
    assert "connection refused" in message
    assert caplog.text.count("cam is connecting: ") == 1, "the same reason is not said again and again"


def test_an_address_of_no_known_kind_is_refused_before_anything_is_opened():
    with pytest.raises(ValidationError, match="expected an address that begins with one of rtsp://"):
        LiveSourceConfig(url="gopher://camera/1")


def test_a_password_that_would_be_taken_for_a_path_is_refused():
    with pytest.raises(ValidationError, match="must be percent-encoded") as raised:
        LiveSourceConfig(url="rtsp://admin:p/ss@camera/1")
    assert "p/ss" not in str(raised.value)


def test_a_password_may_come_from_the_environment(monkeypatch):
    monkeypatch.setenv("CAMERA_PASSWORD", SECRET)
    config = LiveSourceConfig(url="rtsp://admin:${CAMERA_PASSWORD}@camera/1")
    assert config.url == f"rtsp://admin:{SECRET}@camera/1"
    with pytest.raises(ValidationError, match="the environment variable NO_SUCH_NAME is not set"):
        LiveSourceConfig(url="rtsp://admin:${NO_SUCH_NAME}@camera/1")
