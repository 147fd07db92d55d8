"""Which sources a stream may have that is added over the network."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from urllib.parse import urlsplit

from sam3_stream.config.live import LiveSourceConfig
from sam3_stream.config.preview import AllowedSourcesConfig, LoopedFileConfig, WhipSourceConfig
from sam3_stream.core.errors import InputError


def check_source(source: LiveSourceConfig | LoopedFileConfig | WhipSourceConfig, allowed: AllowedSourcesConfig) -> None:
    """Refuse what the config does not allow.

    Raises:
        InputError: It is not allowed; says what is.
    """
    if isinstance(source, WhipSourceConfig):
        if not allowed.whip:
            raise InputError("nobody may share a camera with this server (sources.whip in its config)")
    elif isinstance(source, LoopedFileConfig):
        _check_file(source.path, allowed)
    else:
        if source.ca_file is not None:
            raise InputError("ca_file names a file of the server's, which only its config may")
        _check_url(source.url, allowed)


def _check_file(path: Path, allowed: AllowedSourcesConfig) -> None:
    # Links are followed first, or one in a media folder would lead anywhere.
    try:
        resolved = path.resolve()
    except ValueError as error:
        raise InputError(f"this is no path ({error})") from None
    if not any(resolved.is_relative_to(folder.resolve()) for folder in allowed.media_folders):
        raise InputError("this file is in none of the server's media folders (sources.media_folders in its config)")
    if not resolved.exists():
        raise InputError(f"there is no {path.name} in the server's media folders")


def _check_url(url: str, allowed: AllowedSourcesConfig) -> None:
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), (parts.hostname or "").lower()
    except ValueError as error:
        raise InputError(f"this is no address ({error})") from None
    if scheme not in allowed.schemes:
        known = ", ".join(f"{each}://" for each in allowed.schemes)
        raise InputError(f"addresses like this may not be opened; expected one of {known} (sources.schemes)")
    if not any(_is_host(host, each.lower()) for each in allowed.hosts):
        raise InputError("cameras on this host may not be opened (sources.hosts in the server's config)")


def _is_host(host: str, allowed: str) -> bool:
    """Whether a host is the one allowed, or is an address in the network that is."""
    if host == allowed:
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(allowed)
    except ValueError:
        return _canonical(host) is not None and _canonical(host) == allowed


def _canonical(host: str) -> str | None:
    """An address written in another way (0x7f.1, 2130706433) as FFmpeg's resolver will take it."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None
