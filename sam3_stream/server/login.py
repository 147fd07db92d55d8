"""The way in for browsers: a form for the token, which is exchanged for a cookie."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Form, HTTPException
from fastapi.responses import FileResponse, RedirectResponse

from sam3_stream.server.access import COOKIE, LOGIN_PATH, Token

_FORM = Path(__file__).with_name("page") / "login.html"
_MAX_AGE_S = 30 * 24 * 3600


def router(token: Token | None) -> APIRouter:
    """The routes.

    Args:
        token: What must be shown; None where nothing must.
    """
    routes = APIRouter(include_in_schema=False)

    @routes.get(LOGIN_PATH)
    def form() -> FileResponse:
        # Under no-referrer browsers post forms with "Origin: null", which is refused.
        headers = {"Cache-Control": "no-store", "Referrer-Policy": "same-origin"}
        return FileResponse(_FORM, status_code=401, headers=headers)

    @routes.post(LOGIN_PATH)
    async def log_in(shown: Annotated[str, Form(alias="token", max_length=200)]) -> RedirectResponse:
        if token is None:
            return RedirectResponse("/", 303)
        if not token.opens(shown.strip()):
            raise HTTPException(401, "this is not the token; it was shown when the server was first started")
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, token.session, max_age=_MAX_AGE_S, httponly=True, samesite="strict")
        return response

    return routes
