"""Every error as a problem document (RFC 9457): what was expected, what came, what to do."""

from __future__ import annotations

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException as StarletteHTTPException

from sam3_stream.core.errors import CapacityError, NotFoundError, Sam3StreamError, UsageError

_log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


class Problem(BaseModel):
    """What went wrong."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": Problem, "description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {}}}
    for status in (400, 401, 403, 404, 409, 413, 415, 422, 429, 503, 504)
}


def problem(status: int, detail: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """A response that says what went wrong."""
    content = Problem(title=HTTPStatus(status).phrase, status=status, detail=" ".join(detail.split()))
    return JSONResponse(content.model_dump(), status, media_type=MEDIA_TYPE, headers=headers)


def busy(detail: str, status: int = 503, retry_after_s: int = 1) -> HTTPException:
    """There is no room at present; come back in a while."""
    return HTTPException(status, detail, headers={"Retry-After": str(retry_after_s)})


def add_problem_handlers(app: FastAPI) -> None:
    """Have the application answer every error with a problem document."""

    @app.exception_handler(StarletteHTTPException)
    async def http_error(request: Request, error: StarletteHTTPException) -> JSONResponse:
        detail = error.detail
        if detail == HTTPStatus(error.status_code).phrase:
            detail = f"{request.method} {request.url.path}: {_HINTS.get(error.status_code, detail)}"
        return problem(error.status_code, detail, dict(error.headers or {}))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        said = "; ".join(
            f"{'.'.join(map(str, each['loc'][1:])) or 'body'}: {each['msg']}" for each in error.errors()[:5]
        )
        return problem(422, said)

    @app.exception_handler(Sam3StreamError)
    async def refused(_: Request, error: Sam3StreamError) -> JSONResponse:
        status = next((each for kind, each in _STATUS if isinstance(error, kind)), 500)
        return problem(status, str(error), {"Retry-After": "5"} if status == 503 else None)

    @app.exception_handler(Exception)
    async def bug(request: Request, error: Exception) -> JSONResponse:
        _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        return problem(500, f"a bug in the server: {type(error).__name__}; its log says more")


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NotFoundError, 404),
    (CapacityError, 503),
    (UsageError, 422),
    (Sam3StreamError, 503),
)
_HINTS = {404: "there is nothing of this name; /docs lists what there is", 405: "this cannot be done here; see /docs"}
