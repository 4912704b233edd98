"""Bodies of requests: large ones are parsed and validated in a thread, and objects have a limited number of fields."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

from fastapi import HTTPException, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError

SMALL_BYTES = 32 * 1024
"""Largest body that is parsed in the event loop."""
MOST_FIELDS = 100
"""Fields of an object whose names are fixed."""
MOST_ENTRIES = 50_000
"""Fields, objects and lists of a body together."""
MOST_PARAMETERS = 200
"""Parameters in an address."""

_KEY = re.compile(rb'"[ \t\r\n]*:')
_threads = ThreadPoolExecutor(1, "abaca-bodies")


class InvalidBody(HTTPException):
    """A body that does not fit; `error` is the first of pydantic's."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(422)
        self.error = error


class JsonRoute(APIRoute):
    """A route whose body FastAPI receives as a validated model."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        model: Any = None if self.body_field is None else self.body_field.field_info.annotation
        if model is None:
            return handle

        async def validated(request: Request) -> Response:
            return await handle(_JsonRequest(request, model))

        return validated


class _JsonRequest(Request):
    def __init__(self, request: Request, model: type[BaseModel]) -> None:
        super().__init__(request.scope, request.receive)
        self.model = model

    async def json(self) -> BaseModel:
        """The body as a model; FastAPI accepts an instance as it is."""
        body = await self.body()
        if len(body) <= SMALL_BYTES:
            return parsed(body, self.model)
        return await asyncio.get_running_loop().run_in_executor(_threads, parsed, body, self.model)


def parsed(body: bytes, model: type[BaseModel]) -> BaseModel:
    """A body as a model; InvalidBody where it does not fit."""
    _check_size(body)
    document = json.loads(body)
    _check_fields(document)
    try:
        return model.model_validate(document, from_attributes=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise InvalidBody(dict(first)) from None


def _check_size(body: bytes) -> None:
    """Refuse a body with too many fields, objects or lists before it is parsed: the parser would block all threads."""
    if len(body) > SMALL_BYTES and _at_least(body) > MOST_ENTRIES:
        raise InvalidBody(_too_many(f"the body has more than {MOST_ENTRIES:,} fields, objects and lists"))


def _at_least(body: bytes) -> int:
    return body.count(b"{") + body.count(b"[") + sum(1 for _ in islice(_KEY.finditer(body), MOST_ENTRIES))


def _check_fields(document: Any) -> None:
    """Refuse objects with too many fields, since each unknown field would be an error of its own."""
    if not isinstance(document, dict):
        return
    members = [document, *(one for value in document.values() if isinstance(value, list) for one in value)]
    if any(len(one) > MOST_FIELDS for one in members if isinstance(one, dict)):
        raise InvalidBody(_too_many(f"an object has more than {MOST_FIELDS} fields"))


def _too_many(said: str) -> dict[str, Any]:
    return {"type": "too_many", "loc": (), "msg": said}
