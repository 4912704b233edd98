"""Errors as JSON: what went wrong and what to do, after RFC 9457."""

import difflib
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from abaca.errors import BusyError, QueryError, UserError
from abaca.serve import requests
from abaca.serve.bodies import InvalidBody

NO_STORE = "this server stores no events"
HINTS = {
    400: "send a JSON document; /docs describes each address",
    404: "/docs lists every address",
    405: "/docs lists the methods of each address",
    413: "send fewer histories or events at once",
    503: "try again in a moment",
}
FIELDS = sorted({*requests.Ask.model_fields, *requests.Events.model_fields, *requests.Event.model_fields})
AN_ID = f"an id is a whole number, or text of at most {requests.LONGEST_ID} characters without a null character"
A_COOLDOWN = "a cool-down is a number and a unit, such as `7 days`, `5 items` or `7 days of buy`"
SAID = {
    "extra_forbidden": "there is no such field",
    "missing": "it must be given",
    "string_pattern_mismatch": "it must not hold a null character",
    "json_invalid": "the body is not JSON",
}


def problem(status: int, detail: str, hint: str, headers: dict[str, str] | None = None) -> JSONResponse:
    """An error as JSON."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "hint": hint,
    }
    return JSONResponse(body, status, headers, media_type="application/problem+json")


def add_errors(app: FastAPI) -> None:
    """Answer every error as a problem."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if request.method == "POST" and kind != "application/json" and not kind.endswith("+json"):
            return problem(415, f"the body's type is '{kind[:80]}'", "send the header Content-Type: application/json")
        return _refused_value(error.errors()[0])

    @app.exception_handler(InvalidBody)
    async def unfit(request: Request, error: InvalidBody) -> Response:
        return _refused_value(error.error)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        hint = HINTS.get(error.status_code, HINTS[400])
        if error.detail == NO_STORE:
            hint = "start it with --store, a SQLite file or postgresql://…"
        return problem(error.status_code, _clean(str(error.detail)), hint, dict(error.headers or {}))

    @app.exception_handler(BusyError)
    async def busy(request: Request, error: BusyError) -> Response:
        return problem(503, str(error), "try again in a moment", {"retry-after": str(error.seconds)})

    @app.exception_handler(UserError)
    async def mistaken(request: Request, error: UserError) -> Response:
        code = 422 if isinstance(error, QueryError) else 409
        return problem(code, _clean(str(error)), "GET /model lists the models that are served")


def _refused_value(error: dict[str, Any]) -> Response:
    """The refused value, the cause, and what to do."""
    parts = [str(part)[:80] for part in error["loc"] if part not in ("body", "query", "path")]
    parts = [part for part in parts if not part.startswith(("function-", "dict["))]  # alternatives of a type
    is_id = bool(parts) and parts[-1] in ("int", "constrained-str")
    where = ".".join(parts[:-1] if is_id else parts)
    said = AN_ID if is_id else SAID.get(error["type"], error["msg"].removeprefix("Value error, "))  # pydantic's
    if parts[:1] == ["cooldown"] and "pattern" in error["type"]:
        said = A_COOLDOWN
    if error["type"] == "json_invalid":
        return problem(400, f"{said}: {error['ctx']['error']} at {where}", HINTS[400])
    others = [field for field in FIELDS if field != where]
    near = difflib.get_close_matches(where, others, n=1) if error["type"] == "extra_forbidden" else []
    hint = f"did you mean {near[0]}?" if near else "/docs describes each address"
    return problem(422, _clean(f"{where}: {said}" if where else said), hint)


def _clean(text: str) -> str:
    """Text that can be sent: lone surrogates, which JSON allows, are replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")
