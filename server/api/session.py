"""Signing in and out, and who one is."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from server.domain.access import SESSION_LIFE
from server.services import access

from .deps import By, In
from .door import OpenRoute, PeopleRoute, cookie_name
from .problems import Problem

open_router = APIRouter(prefix="/api", route_class=OpenRoute, tags=["session"])
router = APIRouter(prefix="/api", route_class=PeopleRoute, tags=["session"])


class SignIn(BaseModel):
    """What the sign-in page posts."""

    model_config = ConfigDict(extra="forbid", strict=True)
    code: Annotated[str, Field(min_length=1, max_length=200)]


class Me(BaseModel):
    """Who is signed in, and what of the settings the page must know."""

    role: str
    name: str
    public_url: str | None
    private_webhooks_allowed: bool


@open_router.post("/session", status_code=204, response_class=Response)
def sign_in(body: SignIn, request: Request, response: Response, context: In) -> None:
    """Take a one-time code and set the session's cookie."""
    now = context.now()
    secret = context.database.writer.submit(lambda connection: access.sign_in(connection, body.code, now))
    if secret is None:
        fix = "make a new link with: python -m server signin"
        raise Problem(401, "the sign-in code is unknown, used or too old", fix, headers={"WWW-Authenticate": "Bearer"})
    response.set_cookie(
        cookie_name(request),
        secret,
        max_age=int(SESSION_LIFE.total_seconds()),
        httponly=True,
        samesite="strict",
        secure=request.headers.get("origin", "").startswith("https://"),
    )


@router.delete("/session", status_code=204, response_class=Response)
def sign_out(request: Request, response: Response, context: In) -> None:
    """End the session and take the cookie back."""
    secret = request.cookies.get(cookie_name(request))
    if secret:
        context.database.writer.submit(lambda connection: access.sign_out(connection, secret))
    response.delete_cookie(cookie_name(request), httponly=True, samesite="strict")


@router.get("/me")
def me(context: In, caller: By) -> Me:
    """Who is signed in."""
    return Me(
        role=caller.role.value,
        name=caller.name,
        public_url=context.settings.public_url,
        private_webhooks_allowed=context.policy().allows_inside(),
    )
