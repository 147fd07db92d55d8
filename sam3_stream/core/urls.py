"""Addresses as they may be shown."""

from __future__ import annotations

import re

_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_USER_INFO = re.compile(r"([a-z][a-z0-9+.-]+://)[^/?#\s]*@", re.IGNORECASE)
_SECRET_PARAMETER = re.compile(
    r"([?&][^=&#\s]*(?:token|key|secret|passw|pwd|auth|sig)[^=&#\s]*=)[^&#\s]+", re.IGNORECASE
)


def is_url(source: str) -> bool:
    """Whether this names a protocol, such as ``rtsp://``, and is not a path."""
    return _SCHEME.match(source) is not None


def redact_credentials(text: str) -> str:
    """Blank out user names, passwords and secret query parameters of every URL in a text."""
    return _SECRET_PARAMETER.sub(r"\1***", _USER_INFO.sub(r"\1***@", text))
