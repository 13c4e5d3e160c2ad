"""Every error as a problem document: what is wrong, and what to do next.

Nothing of the request is echoed but the names of its fields, and never a stack.

Source: RFC 9457.
"""

import json
import logging
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException as AnyHTTPException

from server.services import errors
from server.store.writer import StorageUnavailable
from trainer_agent.wire.codec import WireError

_log = logging.getLogger(__name__)

_FIXES = {
    404: "check the address; docs/api.md lists the routes",
    405: "use a method that the Allow header names",
    413: "send less at once",
    415: "send JSON, with the header Content-Type: application/json",
}


_TEXT = {"type": "string"}
_DOCUMENT = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "fix"],
    "properties": {"type": _TEXT, "title": _TEXT, "status": {"type": "integer"}, "detail": _TEXT, "fix": _TEXT},
}
_ANSWER = {"description": "What is wrong, and what to do", "content": {"application/problem+json": {"schema": _DOCUMENT}}}
RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": _ANSWER, "5XX": _ANSWER}
"""For the OpenAPI document: every error of every route looks like this."""


class Problem(HTTPException):
    """A request that cannot be answered as asked. `members` are extra fields of the document."""

    def __init__(
        self,
        status: int,
        detail: str,
        fix: str,
        *,
        members: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.fix = fix
        self.members = dict(members or {})

    def response(self) -> Response:
        """The document."""
        title = HTTPStatus(self.status_code).phrase
        slug = title.lower().replace(" ", "-")
        document = {
            "type": f"urn:lossguard:problem:{slug}",
            "title": title,
            "status": self.status_code,
            "detail": self.detail,
            "fix": self.fix,
            **self.members,
        }
        return Response(_strict(document), self.status_code, self.headers, "application/problem+json")


def _strict(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, ensure_ascii=False).encode("utf-8", "replace")


def invalid(where: str, problem: str, fix: str = "correct the field and send again") -> Problem:
    """A field that does not hold what it must."""
    detail = f"{where}: {problem}" if where else problem
    return Problem(422, detail, fix, members={"problems": [{"where": where, "problem": problem}]})


def of_service(error: errors.ServiceError) -> Problem:
    """A use case's refusal."""
    match error:
        case errors.NotFound():
            return Problem(404, error.detail, error.fix or "check the id")
        case errors.OutOfOrder():
            return Problem(409, error.detail, error.fix, members={"next_seq": error.next_seq})
        case errors.Refused():
            members = {"refusal": error.refusal.name.lower(), "active_command": error.active_command}
            return Problem(409, error.detail, error.fix or "look at the run as it is now", members=members)
        case errors.Stale():
            return Problem(412, error.detail, error.fix, members=_now(error.now))
        case errors.Conflict():
            return Problem(409, error.detail, error.fix or "look at it as it is now")
        case _:
            return Problem(422, error.detail, error.fix or "correct it and send again", members=_wrong_fields(error))


def _wrong_fields(error: errors.ServiceError) -> dict[str, Any]:
    """What a form shows beside its fields, where it is known which are wrong."""
    wrong = error.errors if isinstance(error, errors.Invalid) else ()
    return {"errors": [{"field": field, "message": message} for field, message in wrong]} if wrong else {}


def _now(now: errors.Now) -> dict[str, Any]:
    """The run as it stands, for a page that shows it as it was."""
    known = now.command
    command = None if known is None else {name: getattr(known, name) for name in ("command_id", "kind", "state", "issued_by")}
    run = {"state": now.state, "segment": now.segment, "incarnation": now.incarnation, "step": now.step, "command": command}
    return {"segment": now.segment, "run": run}


def of_validation(failures: Iterable[Mapping[str, Any]]) -> Problem:
    """What Pydantic found, with the places and the reasons, without the values."""
    problems = [
        {"where": ".".join(str(part)[:80] for part in failure["loc"]), "problem": str(failure["msg"])[:300]}
        for failure in failures
    ][:20]
    first = problems[0] if problems else {"where": "", "problem": "the request cannot be read"}
    return Problem(
        422, f"{first['where']}: {first['problem']}", "correct the fields and send again", members={"problems": problems}
    )


def install(app: FastAPI) -> None:
    """Answer with problem documents, whatever goes wrong."""

    @app.exception_handler(errors.ServiceError)
    async def service(_: Request, error: errors.ServiceError) -> Response:
        return of_service(error).response()

    @app.exception_handler(WireError)
    async def wire(_: Request, error: WireError) -> Response:
        return invalid(error.where, error.problem).response()

    @app.exception_handler(StorageUnavailable)
    async def storage(_: Request, error: StorageUnavailable) -> Response:
        headers = {"Retry-After": str(max(1, round(error.retry_after_seconds)))}
        return Problem(503, str(error), "send the same again after the time in Retry-After", headers=headers).response()

    @app.exception_handler(RequestValidationError)
    async def validation(_: Request, error: RequestValidationError) -> Response:
        return of_validation(error.errors()).response()

    @app.exception_handler(AnyHTTPException)
    async def http(_: Request, error: AnyHTTPException) -> Response:
        if isinstance(error, Problem):
            return error.response()
        fix = _FIXES.get(error.status_code, "see docs/api.md")
        return Problem(error.status_code, HTTPStatus(error.status_code).phrase, fix, headers=error.headers).response()

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> Response:
        _log.error("a request failed unexpectedly", exc_info=error)
        return Problem(500, "the server made a mistake", "look into the server's log, and report it").response()
