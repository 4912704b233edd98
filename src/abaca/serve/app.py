"""The HTTP interface: endpoints, and the application that holds them."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Query, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer

from abaca import __version__
from abaca.errors import BusyError, QueryError
from abaca.serve import audit, requests, schemas
from abaca.serve.batching import Batcher
from abaca.serve.events import Event, Past, Store
from abaca.serve.feedback import Feedback, add_feedback
from abaca.serve.guards import MODEL_NAME, Deadline, RequestLog, SizeLimit
from abaca.serve.hosts import HostCheck
from abaca.serve.item_search import item_json, known_item
from abaca.serve.live import live_models
from abaca.serve.metrics import CONTENT_TYPE, Metrics, merged
from abaca.serve.options import MEBIBYTE as MEBIBYTE
from abaca.serve.options import ServerOptions as ServerOptions
from abaca.serve.parts import Parts
from abaca.serve.problems import NO_STORE, add_errors
from abaca.serve.rates import RateLimit
from abaca.serve.routes import add_routes
from abaca.serve.service import Loaded, Service
from abaca.serve.static import Pages
from abaca.serve.stored import past_json, reads, types_of
from abaca.serve.times import stored_moments
from abaca.serve.tokens import TokenAuth
from abaca.serve.worker import Worker

MOST_READ = 20_000
"""Users that one request reads in search of some; the next page continues after them."""
QUICKLY_WRITTEN = 1000
"""Items of an answer that is written at once; a longer one is written in a thread."""

UserInPath = Annotated[str, InPath(min_length=1, max_length=requests.LONGEST_ID, pattern=r"^[^\x00]*$")]


class Api:
    """The endpoints."""

    worker: Worker | None = None
    """The other workers of the port, where there are some."""

    def __init__(
        self, service: Service, metrics: Metrics, store: Store | None, examples: Sequence[Any], options: ServerOptions
    ) -> None:
        self.service, self._metrics, self.store, self.examples = service, metrics, store, examples
        self.split, self.closed = options.split, options.tokens.closed
        self.parts = Parts(service, store, options.learn)
        self.learner, self.calls = self.parts.learner, self.parts.calls
        self.kept = self.learner or store
        if self.learner is not None:
            metrics.watch_learning(self.learner.figures)
        metrics.watch_queue(lambda: service.batcher.waiting, lambda: service.batcher.queue_seconds)
        self._note_models(service.models)

    def _note_models(self, models: Sequence[Loaded]) -> None:
        self._metrics.models({model.name: model.version for model in models})

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """Finish all work before the server ends."""
        yield
        await self.parts.close()

    async def recommend(self, request: Request, ask: requests.Ask) -> Response:
        """Recommend items after one history or several."""
        model = self._model_for(request, ask.model, str(ask.user))
        known = ask.times_asked, ask.moment, ask.types_asked
        found = await self.service.recommend(model, ask.asked, ask.policy, *known)
        self._metrics.unknown(sum(len(one.unknown) for one in found))
        self._metrics.answered(model.name, len(found))

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
        items = [item.values for item in body.items]
        await asyncio.to_thread(adds.add_items, name, items)
        self._tell("items", model=name, items=items)
        return JSONResponse({"model": name, "added": len(body.items)})

    async def models(self) -> Response:
        """The models that are served: encoder, output layer, sizes, training."""
        models = [{"name": model.name, "version": model.version, **model.facts} for model in self.service.models]
        return JSONResponse({"models": models, "store": self.store is not None})

    async def reload(self, request: Request) -> Response:
        """Read the models again; a broken one is refused and the old ones stay."""
        await self.reload_models(audit.who(request))
        self._tell("reload")
        return await self.models()

    async def reload_models(self, who: str = "signal") -> None:
        """Read the models again, and count the result."""
        audit.note(who, "reload")
        await asyncio.to_thread(self._reload)

    def _reload_told(self, message: dict[str, Any]) -> None:
        """Reload as another worker did, or as the supervisor says, which got a signal."""
        if "who" in message:
            audit.note(message["who"], "reload")
        self._reload()

    def _reload(self) -> None:
        try:
            self._note_models(self.service.reload(None if self.learner is None else live_models))
        except Exception:
            self._metrics.reload("refused")
            raise
        self._metrics.reload("done")
        if self.learner is not None:
            self.learner.restart()

    async def health(self) -> Response:
        """Whether the server runs."""
        return JSONResponse({"status": "ok"})

    async def ready(self, find: Annotated[requests.FindModel, Query()]) -> Response:
        """Whether the server can answer: its models, its threads and queues, and writes to its store."""
        models = [self._model(find.model)] if find.model else self.service.models
        await self.parts.readiness.check()
        states = {model.name: await self.service.works(model) for model in models}
        if not all(states.values()):
            failing = ", ".join(name for name, works in states.items() if not works)
            raise BusyError(f"a model cannot answer: {failing}", 10)
        return JSONResponse({"status": "ready", "models": list(states)})

    async def metrics(self) -> Response:
        """Counters for Prometheus; of all workers, where several share the port."""
        text = self._metrics.text()
        if self.worker is not None:
            texts = [(self.worker.place.number, text.decode()), *await self.worker.ask("metrics")]
            text = await asyncio.to_thread(merged, texts)
        return Response(text, media_type=CONTENT_TYPE)

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

    async def feedback(self, body: requests.FeedbackList) -> Response:
        """Store what people did with recommendations, all or none; it is on disk when the answer is sent."""
        store, _ = self._storing()
        now = time.time()
        rows = [
            _feedback(one, now, self._model(one.model or self._split_for(str(one.user))).name) for one in body.feedback
        ]
        stored = await self.calls(add_feedback, store, rows)
        self._metrics.feedback([(row.model, row.kind) for row in rows])
        return JSONResponse({"stored": stored, "duplicates": len(rows) - stored})

    async def users(self, find: Annotated[requests.FindUsers, Query()]) -> Response:
        """Find users whose events are stored, by a part of their id."""
        store, _ = self._storing()
        most = MOST_READ if find.q else find.n
        read = await self.calls(store.users, find.after, most)
        found = [user for user in read if find.q.casefold() in user.casefold()]
        last = found[find.n - 1] if len(found) >= find.n else read[-1] if len(read) == most else None
        return JSONResponse({"users": found[: find.n], "next": last})

    async def user_recommendations(
        self, request: Request, user: UserInPath, ask: Annotated[requests.UserAsk, Query()]
    ) -> Response:
        """Recommend items after the stored history of a user."""
        return await self._recommend_to(self._model_for(request, ask.model, user), user, ask)

    async def user_recommendations_under(self, request: Request, user: UserInPath, ask: requests.UserRules) -> Response:
        """Recommend items after the stored history of a user, under rules with lists or categories."""
        return await self._recommend_to(self._model_for(request, ask.model, user), user, ask)

    async def _recommend_to(self, model: Loaded, user: str, ask: requests.UserAsk | requests.UserRules) -> Response:
        recommender = model.recommender
        history = [past for past in await self._history(user) if reads(recommender, past)]
        times, now = stored_moments(history, ask.now, recommender.time_unit)
        items, types = [[past.item for past in history]], types_of(recommender, history)
        (found,) = await self.service.recommend(model, items, ask.policy, [times], now, types)
        self._metrics.unknown(len(found.unknown))
        self._metrics.answered(model.name, 1)
        whose = {"model": model.name, "version": model.version, "user": user, "events": len(history)}
        return JSONResponse({**whose, **schemas.answer(found)})

    async def user_history(self, request: Request, user: UserInPath) -> Response:
        """The stored history of a user, in the order of time; an unknown item keeps the text of its id."""
        store, _ = self._storing()
        audit.note(audit.who(request), "read history", store.subject(user))
        catalogue = self.service.model().search.catalogue
        return JSONResponse({"user": user, "items": [past_json(catalogue, past) for past in await self._history(user)]})

    async def _history(self, user: str) -> list[Past]:
        """The latest stored items of a user."""
        store, _ = self._storing()
        return await self.calls(store.history, user, requests.MOST_IDS)

    async def forget_user(self, request: Request, user: UserInPath) -> Response:
        """Erase a user: all stored events and feedback; copies of them that arrive later are refused."""
        store, _ = self._storing()
        assert self.kept is not None
        deleted = await self.calls(self.kept.forget, user, audit.who(request))
        audit.note(audit.who(request), "erase", store.subject(user))
        self._tell("forgotten", user=user)
        return JSONResponse({"deleted": deleted})

    def _tell(self, kind: str, **fields: Any) -> None:
        """Tell the other workers what was done here."""
        if self.worker is not None:
            self.worker.send(kind, **fields)

    def join(self, worker: Worker) -> None:
        """Do what other workers were asked to do."""
        self.worker = worker
        adds, learner = self.learner or self.service, self.learner
        worker.handlers = {
            "reload": self._reload_told,
            "items": lambda message: adds.add_items(message["model"], message["items"]),
            "forgotten": lambda message: None if learner is None else learner.recount(message["user"]),
            "metrics": lambda _: self._metrics.text().decode(),
        }

    def _split_for(self, user: str) -> str:
        """The model of a user, by the split; empty where there is none."""
        return self.split.model_for(user) if self.split is not None and user else ""

    def _model_for(self, request: Request, name: str, user: str) -> Loaded:
        """The model that answers: the one that is asked for, else the user's, else the first."""
        model = self._model(name or self._split_for(user))
        request.scope[MODEL_NAME] = model.name
        return model

    def _model(self, name: str) -> Loaded:
        try:
            return self.service.model(name or None)
        except QueryError as error:
            raise HTTPException(404, str(error)) from error

    def _storing(self) -> tuple[Store, "Batcher[Sequence[Event], int]"]:
        if self.store is None or self.parts.writer is None:
            raise HTTPException(404, NO_STORE)
        return self.store, self.parts.writer


def make_app(
    service: Service,
    metrics: Metrics,
    store: Store | None = None,
    examples: Sequence[dict[str, Any]] = (),
    options: ServerOptions | None = None,
) -> FastAPI:
    """The application: endpoints, errors with hints, and middleware."""
    options = options or ServerOptions()
    api = Api(service, metrics, store, examples, options)
    app = FastAPI(
        title="Abaca",
        version=__version__,
        description="Next-item recommendation that learns when to repeat and when to explore.",
        docs_url=None,
        redoc_url=None,
        lifespan=api.lifespan,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if options.tokens.closed else [],
    )
    app.state.api, app.state.metrics = api, metrics
    add_routes(app, api, Pages())
    add_errors(app)
    app.add_middleware(SizeLimit, most=options.body_bytes)
    app.add_middleware(RateLimit, rate=options.rate, share=options.share)
    app.add_middleware(TokenAuth, tokens=options.tokens, admin_port=options.admin_port)
    app.add_middleware(HostCheck, hosts=options.hosts)
    app.add_middleware(Deadline, seconds=options.seconds)
    app.add_middleware(RequestLog, metrics=metrics)
    return app


def _event(event: requests.Event, now: float) -> Event:
    """An event with an id and a time; both are made where the sender gave none."""
    moment = event.time if "time" in event.model_fields_set else now
    return Event(event.id or uuid.uuid4().hex, str(event.user), str(event.item), moment, event.type)


def _feedback(one: requests.Feedback, now: float, model: str) -> Feedback:
    moment = one.time if "time" in one.model_fields_set else now
    return Feedback(one.id or uuid.uuid4().hex, str(one.user), str(one.item), moment, one.kind, model)
