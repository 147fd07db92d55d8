"""Opening a live source: FFmpeg's options by protocol, and what its errors mean.

FFmpeg's errors do not tell the causes apart (a silent server is "invalid data", an unknown host an "input/output
error") and carry the whole address, password included. So the cause is looked for on a connection of our own, and
nothing of the original error is passed on.
"""

from __future__ import annotations

import socket
import ssl
from urllib.parse import urlsplit

import av
from av.container import InputContainer

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.core.errors import StreamError
from sam3_stream.core.urls import redact_credentials

_PORTS = {"rtsp": 554, "rtsps": 322, "rtmp": 1935, "rtmps": 443, "http": 80, "https": 443}
_TLS = ("rtsps", "rtmps", "https")
_DIAGNOSIS_TIMEOUT_S = 3.0
_NO_READ_TIMEOUT = -1.0


def open_live(config: LiveSourceConfig) -> InputContainer:
    """Open a live source.

    RTSP gets FFmpeg's own time-out for a silent socket and none of PyAV's for reading: PyAV's takes Python's lock
    several times for each network packet, which slows every stream once there are many (PyAV issue 1112). The other
    protocols read in large pieces, and some of them have no time-out that works; there PyAV's costs nothing.

    Raises:
        StreamError: It cannot be opened; says why.
    """
    scheme = urlsplit(config.url).scheme.lower()
    if not scheme:
        return _open(config, "video4linux2", {}, config.read_timeout_s)
    options = _tls_options(config) if scheme in _TLS else {}
    if scheme in ("rtsp", "rtsps"):
        options |= {
            "rtsp_transport": config.transport,
            "timeout": str(round(config.read_timeout_s * 1e6)),
            "fpsprobesize": "0",  # nobody needs the average rate before the first picture
        }
        return _open(config, "rtsp", options, _NO_READ_TIMEOUT)
    options |= {
        "rw_timeout": str(round(config.read_timeout_s * 1e6)),
        "analyzeduration": "2000000",  # or FFmpeg waits five seconds for the sound that an RTMP stream may have
    }
    return _open(config, None, options, config.read_timeout_s)


def display_address(config: LiveSourceConfig) -> str:
    """The address as it may be shown."""
    return redact_credentials(config.url)


def _open(
    config: LiveSourceConfig, file_format: str | None, options: dict[str, str], read_timeout_s: float
) -> InputContainer:
    try:
        return av.open(
            config.url,
            "r",
            format=file_format,
            options=options,
            metadata_errors="replace",
            timeout=(config.connect_timeout_s, read_timeout_s),
        )
    except av.FFmpegError as error:
        cause = _explain(error, config)
    raise cause


def _tls_options(config: LiveSourceConfig) -> dict[str, str]:
    options = {"tls_verify": "1" if config.verify_tls else "0"}
    if config.ca_file is not None:
        options["ca_file"] = str(config.ca_file)
    return options


def _explain(error: av.FFmpegError, config: LiveSourceConfig) -> StreamError:
    name = display_address(config)
    match error:
        case av.error.HTTPUnauthorizedError() | av.error.HTTPForbiddenError():
            return StreamError(
                f"{name} refused the user name or password: put the right ones into the address, SCHEME://USER:PASSWORD@…",
                lasting=True,
            )
        case av.error.HTTPNotFoundError():
            return StreamError(f"{name}: the server knows no such path; check what follows the host", lasting=True)
        case av.error.HTTPClientError() | av.error.HTTPServerError():
            return StreamError(f"{name}: the server answered: {error.strerror}")
        case av.error.FileNotFoundError() | av.error.PermissionError() if config.url.startswith("/dev/"):
            return StreamError(f"{name}: {error.strerror}; expected a camera such as /dev/video0", lasting=True)
        case _:
            return _diagnose(config) or StreamError(f"{name} cannot be opened: {error.strerror}")


def _diagnose(config: LiveSourceConfig) -> StreamError | None:
    """What a plain connection to the same host says; None when it says nothing of interest."""
    parts = urlsplit(config.url)
    scheme, host = parts.scheme.lower(), parts.hostname
    port = parts.port or _PORTS.get(scheme)
    if host is None or port is None or scheme == "udp":
        return None
    name = display_address(config)
    try:
        with socket.create_connection((host, port), timeout=_DIAGNOSIS_TIMEOUT_S) as plain:
            if scheme in _TLS and config.verify_tls:
                context = ssl.create_default_context(cafile=config.ca_file)
                context.wrap_socket(plain, server_hostname=host).close()
    except ConnectionRefusedError:
        return StreamError(f"{name}: connection refused, nothing listens on port {port}; is the camera on?")
    except socket.gaierror:
        return StreamError(f"{name}: the host name {host} is unknown; check it and the name server")
    except ssl.SSLCertVerificationError as error:
        return StreamError(
            f"{name}: the certificate cannot be verified ({error.verify_message}): "
            "name the one to trust with ca_file, or set verify_tls to false",
            lasting=True,
        )
    except TimeoutError:
        return StreamError(f"{name}: no answer from {host}; is it on, and is there a way to it?")
    except OSError as error:
        return StreamError(f"{name}: {error.strerror or 'the connection broke off'}")
    return StreamError(f"{name}: port {port} takes connections, but gives no {scheme} stream; is this the right port?")
