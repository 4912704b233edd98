"""The server's HTTP face."""

import asyncio
import hashlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import fastapi_offline
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from abaca import __version__
from abaca.data.catalogue import Catalogue
from abaca.errors import QueryError
from abaca.serve import schemas
from abaca.serve.batching import Batcher
from abaca.serve.events import Event, Store
from abaca.serve.guards import BodyLimit, Deadline, Gate, Recorder
from abaca.serve.meters import CONTENT_TYPE, Meters
from abaca.serve.problems import NO_STORE, add_errors
from abaca.serve.schemas import FindQuery, UserQuery
from abaca.serve.service import Loaded, Service

MEBIBYTE = 1 << 20
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
MOST_REMEMBERED = schemas.MOST_IDS
"""The latest events of a user that a recommendation reads."""

TOGETHER, ROOM = 256, 10_000
"""Requests with events that one transaction takes, and those that may wait for it."""
QUICKLY_WRITTEN = 1000
"""Items of an answer that is written at once; a longer one is written beside other requests."""

UserInPath = Annotated[str, InPath(min_length=1, max_length=schemas.LONGEST_ID, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True)
class ServerOptions:
    """How the server guards itself."""

    token: str | None = None
    """Who asks must bear it; None: everybody may ask."""
    admin_token: str | None = None
    """Who reloads must bear it."""
    admin_port: int | None = None
    """Reloading needs no token at this port."""
    seconds: float = 30.0
    """An answer that takes longer is given up."""
    body_bytes: int = 4 * MEBIBYTE
    """The largest body taken."""


class Face:
    """The endpoints, and what they share."""

    def __init__(
        self, service: Service, meters: Meters, store: Store | None, examples: Sequence[dict[str, Any]]
    ) -> None:
        self.service, self.meters, self.store, self.examples = service, meters, store, examples
        self.writer = None if store is None else Batcher(store.add, TOGETHER, ROOM)
        self.files = page_files()
        meters.waiting(lambda: service.batcher.waiting)
        self._note_models(service.models)

    def _note_models(self, models: Sequence[Loaded]) -> None:
        self.meters.models({model.name: model.version for model in models})

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Finish what was begun before the server ends."""
        yield
        for part in (self.service, self.writer, self.store):
            if part is not None:
                await asyncio.to_thread(part.close)

    async def recommend(self, ask: schemas.Ask) -> Response:
        """What comes next after one history or many."""
        model = self._model(ask.model)
        found = await self.service.recommend(model, ask.asked, ask.policy)
        self.meters.unknown(sum(len(one.unknown) for one in found))

        def written() -> Response:
            answers = [schemas.answer(one) for one in found]
            return JSONResponse({"model": model.name, "version": model.version, "answers": answers})

        return await asyncio.to_thread(written) if ask.n * len(found) > QUICKLY_WRITTEN else written()

    def items(self, find: FindQuery) -> Response:
        """Find items by id or by words of their title."""
        finder = self._model(find.model).finder
        return JSONResponse({"items": [_item(finder.catalogue, item) for item in finder.find(find.q, find.n)]})

    async def models(self) -> Response:
        """Which models are served, what they are and what they were trained on."""
        models = [{"name": model.name, "version": model.version, **model.facts} for model in self.service.models]
        return JSONResponse({"models": models, "store": self.store is not None})

    async def reload(self) -> Response:
        """Read the models anew; a broken one is refused and the old ones stay."""
        await self.reload_models()
        return await self.models()

    async def reload_models(self) -> None:
        """Read the models anew, and count how it went."""
        try:
            self._note_models(await asyncio.to_thread(self.service.reload))
        except Exception:
            self.meters.reload("refused")
            raise
        self.meters.reload("done")

    async def health(self) -> Response:
        """Whether the server lives."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Whether the server can answer: its models are loaded, its store can be reached."""
        if self.store is not None:
            await asyncio.to_thread(self.store.check)
        return JSONResponse({"status": "ready"})

    async def metrics(self) -> Response:
        """What Prometheus reads."""
        return Response(self.meters.text(), media_type=CONTENT_TYPE)

    async def example_users(self) -> Response:
        """Users of the data whose histories can be tried."""
        return JSONResponse({"examples": list(self.examples)})

    async def events(self, body: schemas.Events) -> Response:
        """Remember events, all or none; they are on disk when this is answered."""
        _, writer = self._storing()
        now = time.time()
        events = [_event(event, now) for event in body.events]
        (stored,) = await writer.submit([events])
        self.meters.events(stored, len(events) - stored)
        return JSONResponse({"stored": stored, "duplicates": len(events) - stored})

    async def user_recommendations(self, user: UserInPath, ask: UserQuery) -> Response:
        """What comes next after the history that the server remembers of a user."""
        store, _ = self._storing()
        model = self._model(ask.model)
        history = await asyncio.to_thread(store.history, user, MOST_REMEMBERED)
        (found,) = await self.service.recommend(model, [history], ask.policy)
        whose = {"model": model.name, "version": model.version, "user": user, "events": len(history)}
        return JSONResponse({**whose, **schemas.answer(found)})

    async def user_history(self, user: UserInPath) -> Response:
        """What the server remembers of a user, in the order of time."""
        store, _ = self._storing()
        catalogue = self.service.model().finder.catalogue
        ids = await asyncio.to_thread(store.history, user, MOST_REMEMBERED)
        items = [
            {"id": id, "title": id} if item is None else {"id": catalogue.ids[item], "title": catalogue.name(item)}
            for id, item in zip(ids, map(catalogue.index, ids), strict=True)
        ]
        return JSONResponse({"user": user, "items": items})

    async def forget_user(self, user: UserInPath) -> Response:
        """Delete everything that the server remembers of a user."""
        store, _ = self._storing()
        return JSONResponse({"deleted": await asyncio.to_thread(store.forget, user)})

    def _model(self, name: str) -> Loaded:
        try:
            return self.service.model(name or None)
        except QueryError as error:
            raise HTTPException(404, str(error)) from error

    def _storing(self) -> tuple[Store, "Batcher[Sequence[Event], int]"]:
        if self.store is None or self.writer is None:
            raise HTTPException(404, NO_STORE)
        return self.store, self.writer

    async def page(self, request: Request) -> Response:
        """The page."""
        return self._file(request, "index.html")

    async def docs(self, request: Request) -> Response:
        """This documentation."""
        return self._file(request, "docs.html")

    async def static(self, request: Request, name: str) -> Response:
        """A file of the page."""
        return self._file(request, name)

    def _file(self, request: Request, name: str) -> Response:
        """One of the files that were read when the server began; there is no way to any other."""
        if name not in self.files:
            raise HTTPException(404, "there is no such file")
        content, etag = self.files[name]
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=TYPES[Path(name).suffix], headers=headers)


def page_files() -> dict[str, tuple[bytes, str]]:
    """The page's files and Swagger's by name, each with a tag that changes when it does."""
    own = [file for file in files("abaca.serve").joinpath("page").iterdir() if Path(file.name).suffix in TYPES]
    static = files(fastapi_offline).joinpath("static")
    swagger = [static.joinpath(name) for name in ("swagger-ui-bundle.js", "swagger-ui.css")]
    content = {file.name: file.read_bytes() for file in [*own, *swagger]}
    return {name: (data, f'"{hashlib.sha256(data).hexdigest()[:16]}"') for name, data in content.items()}


def make_app(
    service: Service,
    meters: Meters,
    store: Store | None = None,
    examples: Sequence[dict[str, Any]] = (),
    options: ServerOptions | None = None,
) -> FastAPI:
    """The application: endpoints, errors with hints, and the guards before them."""
    options = options or ServerOptions()
    face = Face(service, meters, store, examples)
    app = FastAPI(
        title="Abaca",
        version=__version__,
        description="Next-item recommendation that learns when to repeat and when to explore.",
        docs_url=None,
        redoc_url=None,
        lifespan=face.lifespan,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if options.token else [],
    )
    app.state.face = face
    _add_routes(app, face)
    add_errors(app)
    app.add_middleware(BodyLimit, most=options.body_bytes)
    app.add_middleware(Gate, token=options.token, admin_token=options.admin_token, admin_port=options.admin_port)
    app.add_middleware(Deadline, seconds=options.seconds)
    app.add_middleware(Recorder, meters=meters)
    return app


def _add_routes(app: FastAPI, face: Face) -> None:
    body = _refusals(400, 401, 404, 413, 415, 422, 503)
    plain = _refusals(401, 404, 422, 503)
    for method, path, endpoint, answers, refusals in (
        ("POST", "/recommend", face.recommend, schemas.Answers, body),
        ("GET", "/items", face.items, schemas.Found, plain),
        ("GET", "/model", face.models, schemas.Models, _refusals(401, 503)),
        ("POST", "/model/reload", face.reload, schemas.Models, _refusals(401, 403, 409, 503)),
        ("GET", "/examples", face.example_users, schemas.Examples, _refusals(401, 503)),
        ("POST", "/events", face.events, schemas.Remembered, body),
        ("GET", "/users/{user:path}/recommendations", face.user_recommendations, schemas.UserAnswer, plain),
        ("GET", "/users/{user:path}/history", face.user_history, schemas.UserHistory, plain),
        ("DELETE", "/users/{user:path}", face.forget_user, schemas.Forgotten, plain),
        ("GET", "/health", face.health, schemas.Status, _refusals(503)),
        ("GET", "/ready", face.ready, schemas.Status, _refusals(503)),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_model=answers, responses=refusals)
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    app.add_api_route("/metrics", face.metrics, response_class=Response, responses={200: text, **_refusals(401, 503)})
    app.add_api_route("/", face.page, include_in_schema=False)
    app.add_api_route("/docs", face.docs, include_in_schema=False)
    app.add_api_route("/static/{name}", face.static, include_in_schema=False)


def _refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"model": schemas.Problem, "content": content} for code in codes}


def _item(catalogue: Catalogue, item: int) -> dict[str, Any]:
    return {"id": catalogue.ids[item], "title": catalogue.name(item)}


def _event(event: schemas.Event, now: float) -> Event:
    """An event with an id and a time, also where its sender gave none."""
    moment = event.time if "time" in event.model_fields_set else now
    return Event(event.id or uuid.uuid4().hex, str(event.user), str(event.item), moment)
