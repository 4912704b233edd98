"""The addresses of the HTTP interface, and what the OpenAPI document says of each."""

from typing import Any

from fastapi import FastAPI, Response

from abaca.serve import schemas
from abaca.serve.bodies import JsonRoute
from abaca.serve.static import Pages


def add_routes(app: FastAPI, api: Any, pages: Pages) -> None:
    """Add every endpoint, with what it answers and refuses."""
    app.router.route_class = JsonRoute
    body, plain = _refusals(400, 404, 413, 415, 422), _refusals(400, 404, 422)
    for method, path, endpoint, answers, refusals in (
        ("POST", "/recommend", api.recommend, schemas.Answers, body),
        ("GET", "/items", api.items, schemas.Items, plain),
        ("POST", "/items", api.add_items, schemas.Added, _refusals(400, 404, 409, 413, 415, 422)),
        ("GET", "/model", api.models, schemas.Models, _refusals()),
        ("POST", "/model/reload", api.reload, schemas.Models, _refusals(409)),
        ("GET", "/examples", api.example_users, schemas.Examples, _refusals()),
        ("POST", "/events", api.events, schemas.Stored, body),
        ("POST", "/feedback", api.feedback, schemas.Stored, body),
        ("GET", "/users", api.users, schemas.Users, plain),
        ("GET", "/users/{user:path}/recommendations", api.user_recommendations, schemas.UserAnswer, plain),
        ("POST", "/users/{user:path}/recommendations", api.user_recommendations_under, schemas.UserAnswer, body),
        ("GET", "/users/{user:path}/history", api.user_history, schemas.UserHistory, plain),
        ("DELETE", "/users/{user:path}", api.forget_user, schemas.Deleted, plain),
        ("GET", "/health", api.health, schemas.Status, _refusals()),
        ("GET", "/ready", api.ready, schemas.Ready, plain),
    ):
        app.add_api_route(path, endpoint, methods=[method], response_model=answers, responses=refusals)
    text = {"content": {"text/plain": {"schema": {"type": "string"}}}}
    app.add_api_route("/metrics", api.metrics, response_class=Response, responses={200: text, **_refusals()})
    app.add_api_route("/", pages.page, include_in_schema=False)
    app.add_api_route("/docs", pages.docs, include_in_schema=False)
    app.add_api_route("/static/{name}", pages.static, include_in_schema=False)


EVERYWHERE = (401, 403, 414, 421, 429, 431, 503)
"""Refusals of any address: tokens, names, limits of heads and rates, a server that is busy."""


def _refusals(*codes: int) -> dict[int | str, dict[str, Any]]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {code: {"model": schemas.Problem, "content": content} for code in sorted((*codes, *EVERYWHERE))}
