"""The HTTP interface: endpoints, and the application that holds them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from abaca import __version__
from abaca.errors import QueryError
from abaca.serve import requests, schemas
from abaca.serve.batching import Batcher
from abaca.serve.events import Event, Past, Store
from abaca.serve.guards import BodyLimit, Deadline, RequestLog, TokenAuth
from abaca.serve.item_search import item_json, known_item
from abaca.serve.learning import Learner
from abaca.serve.metrics import CONTENT_TYPE, Metrics
from abaca.serve.problems import NO_STORE, add_errors
from abaca.serve.service import Loaded, Service
from abaca.serve.static import TYPES, page_files
from abaca.serve.stored import reads, types_of
from abaca.serve.times import stored_moments

MEBIBYTE = 1 << 20
MOST_READ = 20_000
"""Users that one request reads in search of some; the next page continues after them."""
TOGETHER, ROOM = 256, 10_000
"""Requests with events that share one transaction, and those that may wait for it."""
QUICKLY_WRITTEN = 1000
"""Items of an answer that is written at once; a longer one is written in a thread."""

UserInPath = Annotated[str, InPath(min_length=1, max_length=requests.LONGEST_ID, pattern=r"^[^\x00]*$")]


@dataclass(frozen=True)
class ServerOptions:
    """Tokens and limits of the server."""

    token: str | None = None
    """The token of every request; None: no token is needed."""
    admin_token: str | None = None
    """The token for reloading and adding items."""
    admin_port: int | None = None
    """Reloading and adding items need no token at this port."""
    seconds: float = 30.0
    """Longest time of an answer."""
    body_bytes: int = 4 * MEBIBYTE
    """Largest body of a request."""
    learn: bool = False
    """Whether the counts of followers take every event that is accepted."""


class Api:
    """The endpoints."""

    def __init__(self, service: Service, metrics: Metrics, store: Store | None, examples: Sequence[Any], learn: bool):
        self.service, self._metrics, self.store, self.examples = service, metrics, store, examples
        self.learner = Learner(store, service) if store is not None and learn else None
        self.kept = self.learner or store
        if self.learner is not None:
            metrics.watch_learning(self.learner.figures)
        self.writer = None if self.kept is None else Batcher(self.kept.add, TOGETHER, ROOM)
        self.files = page_files()
        metrics.watch_queue(lambda: service.batcher.waiting)
        self._note_models(service.models)

    def _note_models(self, models: Sequence[Loaded]) -> None:
        self._metrics.models({model.name: model.version for model in models})

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Finish all work before the server ends."""
        yield
        for part in (self.service, self.writer, self.learner, self.store):
            if part is not None:
                await asyncio.to_thread(part.close)

    async def recommend(self, ask: requests.Ask) -> Response:
        """Recommend items after one history or several."""
        model = self._model(ask.model)
        known = ask.times_asked, ask.moment, ask.types_asked
        found = await self.service.recommend(model, ask.asked, ask.policy, *known)
        self._metrics.unknown(sum(len(one.unknown) for one in found))

        def written() -> Response:
            answers = [schemas.answer(one) for one in found]
            return JSONResponse({"model": model.name, "version": model.version, "answers": answers})

        return await asyncio.to_thread(written) if ask.n * len(found) > QUICKLY_WRITTEN else written()

    def items(self, find: Annotated[requests.FindItems, Query()]) -> Response:
        """Find items by id or by words of their title."""
        search = self._model(find.model).search
        looked_up = (known_item(search.catalogue, id) for id in find.id)
        found = [item for item in looked_up if item is not None] if find.id else search.find(find.q, find.n)
        return JSONResponse({"items": [item_json(search.catalogue, item) for item in found]})

    async def add_items(self, body: requests.NewItems) -> Response:
        """Add items with their features to a model until it is read again; they are recommended within a second."""
        name, adds = self._model(body.model).name, self.learner or self.service
        await asyncio.to_thread(adds.add_items, name, [item.values for item in body.items])
        return JSONResponse({"model": name, "added": len(body.items)})

    async def models(self) -> Response:
        """The models that are served: encoder, output layer, sizes, training."""
        models = [{"name": model.name, "version": model.version, **model.facts} for model in self.service.models]
        return JSONResponse({"models": models, "store": self.store is not None})

    async def reload(self) -> Response:
        """Read the models again; a broken one is refused and the old ones stay."""
        await self.reload_models()
        return await self.models()

    async def reload_models(self) -> None:
        """Read the models again, and count the result."""
        try:
            self._note_models(await asyncio.to_thread(self.service.reload))
            if self.learner is not None:
                await asyncio.to_thread(self.learner.restart)
        except Exception:
            self._metrics.reload("refused")
            raise
        self._metrics.reload("done")

    async def health(self) -> Response:
        """Whether the server runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self) -> Response:
        """Whether the server can answer: its models are loaded, its store can be reached."""
        if self.store is not None:
            await asyncio.to_thread(self.store.check)
        return JSONResponse({"status": "ready"})

    async def metrics(self) -> Response:
        """Counters for Prometheus."""
        return Response(self._metrics.text(), media_type=CONTENT_TYPE)

    async def example_users(self) -> Response:
        """Example users of the data with their histories."""
        return JSONResponse({"examples": list(self.examples)})

    async def events(self, body: requests.Events) -> Response:
        """Store events, all or none; they are on disk when the answer is sent."""
        _, writer = self._storing()
        now = time.time()
        events = [_event(event, now) for event in body.events]
        (stored,) = await writer.submit([events])
        self._metrics.events(stored, len(events) - stored)
        return JSONResponse({"stored": stored, "duplicates": len(events) - stored})

    async def users(self, find: Annotated[requests.FindUsers, Query()]) -> Response:
        """Find users whose events are stored, by a part of their id."""
        store, _ = self._storing()
        most = MOST_READ if find.q else find.n
        read = await asyncio.to_thread(store.users, find.after, most)
        found = [user for user in read if find.q.casefold() in user.casefold()]
        last = found[find.n - 1] if len(found) >= find.n else read[-1] if len(read) == most else None
        return JSONResponse({"users": found[: find.n], "next": last})

    async def user_recommendations(self, user: UserInPath, ask: Annotated[requests.UserAsk, Query()]) -> Response:
        """Recommend items after the stored history of a user."""
        return await self._recommend_to(user, ask)

    async def user_recommendations_under(self, user: UserInPath, ask: requests.UserRules) -> Response:
        """Recommend items after the stored history of a user, under rules with lists or categories."""
        return await self._recommend_to(user, ask)

    async def _recommend_to(self, user: str, ask: requests.UserAsk | requests.UserRules) -> Response:
        model = self._model(ask.model)
        recommender = model.recommender
        history = [past for past in await self._history(user) if reads(recommender, past)]
        times, now = stored_moments(history, ask.now, recommender.time_unit)
        items, types = [[past.item for past in history]], types_of(recommender, history)
        (found,) = await self.service.recommend(model, items, ask.policy, [times], now, types)
        whose = {"model": model.name, "version": model.version, "user": user, "events": len(history)}
        return JSONResponse({**whose, **schemas.answer(found)})

    async def user_history(self, user: UserInPath) -> Response:
        """The stored history of a user, in the order of time; an unknown item keeps the text of its id."""
        catalogue = self.service.model().search.catalogue
        history = ((past, known_item(catalogue, past.item)) for past in await self._history(user))
        items = [
            {
                **({"id": past.item, "title": past.item} if item is None else item_json(catalogue, item)),
                "time": past.time,
                "type": past.type,
            }
            for past, item in history
        ]
        return JSONResponse({"user": user, "items": items})

    async def _history(self, user: str) -> list[Past]:
        """The latest stored items of a user."""
        store, _ = self._storing()
        return await asyncio.to_thread(store.history, user, requests.MOST_IDS)

    async def forget_user(self, user: UserInPath) -> Response:
        """Delete all stored events of a user."""
        self._storing()
        assert self.kept is not None
        return JSONResponse({"deleted": await asyncio.to_thread(self.kept.forget, user)})

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
        """One of the files that were read at the start; no other file can be reached."""
        if name not in self.files:
            raise HTTPException(404, "there is no such file")
        content, etag = self.files[name]
        headers = {"etag": etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=TYPES[Path(name).suffix], headers=headers)


def make_app(
    service: Service,
    metrics: Metrics,
    store: Store | None = None,
    examples: Sequence[dict[str, Any]] = (),
    options: ServerOptions | None = None,
) -> FastAPI:
    """The application: endpoints, errors with hints, and middleware."""
    options = options or ServerOptions()
    api = Api(service, metrics, store, examples, options.learn)
    app = FastAPI(
        title="Abaca",
        version=__version__,
        description="Next-item recommendation that learns when to repeat and when to explore.",
        docs_url=None,
        redoc_url=None,
        lifespan=api.lifespan,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if options.token else [],
    )
    app.state.api = api
    _add_routes(app, api)
    add_errors(app)
    app.add_middleware(BodyLimit, most=options.body_bytes)
    app.add_middleware(TokenAuth, token=options.token, admin_token=options.admin_token, admin_port=options.admin_port)
    app.add_middleware(Deadline, seconds=options.seconds)
    app.add_middleware(RequestLog, metrics=metrics)
    return app


def _add_routes(app: FastAPI, api: Api) -> None:
    body = _refusals(400, 401, 404, 413, 415, 422, 503)
    plain = _refusals(401, 404, 422, 503)
    for method, path, endpoint, answers, refusals in (
        ("POST", "/recommend", api.recommend, schemas.Answers, body),
        ("GET", "/items", api.items, schemas.Items, plain),
        ("POST", "/items", api.add_items, schemas.Added, _refusals(400, 401, 403, 404, 409, 413, 415, 422, 503)),
        ("GET", "/model", api.models, schemas.Models, _refusals(401, 503)),
        ("POST", "/model/reload", api.reload, schemas.Models, _refusals(401, 403, 409, 503)),
        ("GET", "/examples", api.example_users, schemas.Examples, _refusals(401, 503)),
        ("POST", "/events", api.events, schemas.Stored, body),
        ("GET", "/users", api.users, schemas.Users, plain),
        ("GET", "/users/{user:path}/recommendations", api.user_recommendations, schemas.UserAnswer, plain),
        ("POST", "/users/{user:path}/recommendations", api.user_recommendations_under, schemas.UserAnswer, body),
        ("GET", "/users/{user:path}/history", api.user_history, schemas.UserHistory, plain),
        ("DELETE", "/users/{user:path}", api.forget_user, schemas.Deleted, plain),
        ("GET", "/health", api.health, schemas.Status, _refusals(503)),
        ("GET", "/ready", api.ready, schemas.Status, _refusals(503)),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_model=answers, responses=refusals)
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    app.add_api_route("/metrics", api.metrics, response_class=Response, responses={200: text, **_refusals(401, 503)})
    app.add_api_route("/", api.page, include_in_schema=False)
    app.add_api_route("/docs", api.docs, include_in_schema=False)
    app.add_api_route("/static/{name}", api.static, include_in_schema=False)


def _refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"model": schemas.Problem, "content": content} for code in codes}


def _event(event: requests.Event, now: float) -> Event:
    """An event with an id and a time; both are made where the sender gave none."""
    moment = event.time if "time" in event.model_fields_set else now
    return Event(event.id or uuid.uuid4().hex, str(event.user), str(event.item), moment, event.type)
