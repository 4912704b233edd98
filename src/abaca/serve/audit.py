"""Lines of the log for a privacy officer: who read a history, erased a user, or reloaded the models, and when."""

import logging

logger = logging.getLogger("abaca.audit")


def note(who: str, what: str, subject: str = "") -> None:
    """Log an action. `subject` is a digest of a user, as `abaca store export` shows it; never the user's id."""
    entry = {"who": who, "what": what, **({"subject": subject} if subject else {})}
    logger.info("audit", extra={"entry": entry})
