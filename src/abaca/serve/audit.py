"""Lines of the log for a privacy officer: who read a history, erased a user, or reloaded the models, and when."""

import logging

from starlette.requests import Request

from abaca.serve.tokens import TOKEN

logger = logging.getLogger("abaca.audit")


def note(who: str, what: str, subject: str = "") -> None:
    """Log an action. `subject` is a digest of a user, as `abaca store export` shows it; never the user's id."""
    entry = {"who": who, "what": what, **({"subject": subject} if subject else {})}
    logger.info("audit", extra={"entry": entry})


def who(request: Request) -> str:
    """Who sends a request: the name of the token, and the address."""
    token = request.scope.get(TOKEN)
    address = request.client.host if request.client else ""
    return f"{getattr(token, 'name', 'anyone')} at {address}"
