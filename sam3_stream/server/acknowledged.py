"""Waiting, without holding up the server, until what was asked has taken effect on a frame."""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError, Future
from typing import TypeVar

from fastapi import HTTPException

T = TypeVar("T")

_TIMEOUT_S = 10.0


async def acknowledged(asked: Future[T]) -> T:
    """What the stream says when a frame has been tracked with it.

    Raises:
        HTTPException: 504 when no frame comes, 503 when the stream ends or is restarted first.
    """
    try:
        return await asyncio.wait_for(asyncio.wrap_future(asked), _TIMEOUT_S)
    except TimeoutError:
        raise HTTPException(504, f"the stream gave no frame within {_TIMEOUT_S:g} s; see how it is") from None
    except (asyncio.CancelledError, CancelledError):
        if not asked.cancelled():
            raise  # it is the request that was cancelled
        raise HTTPException(503, "the stream ended or began anew; try again", {"Retry-After": "1"}) from None
