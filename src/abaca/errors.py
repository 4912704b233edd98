"""What can go wrong, and whose mistake it is.

AbacaError                 every error the library raises on purpose
├── BusyError              the server cannot answer now, but may soon
└── UserError              the user's mistake: one message: what is wrong, where, and what to do
    ├── LogError           the interaction log (file, line, cure)
    ├── SpecError          an encoder, output layer or option that makes no sense
    ├── FetchError         a public data set that cannot be downloaded, verified or unpacked
    ├── SequencesError     a prepared folder that is missing, damaged or of another version
    ├── TrainingError      training that cannot go on as it was set up
    │   └── DivergedError  its numbers are not finite any more
    ├── ProcessError       processes that train together and lost each other
    ├── ModelError         a model directory that is missing, damaged or of another version
    ├── StoreError         a store of events that cannot be opened or is of another version
    └── QueryError         a question a model cannot answer
"""

import re

_PASSWORDS = (re.compile(r"(://[^\s/:@'\"]*:)\S*(?=@)"), re.compile(r"(\bpassword=)[^\s&'\"]+", re.IGNORECASE))


def without_passwords(text: str) -> str:
    """Text with stars in place of the passwords of addresses, such as postgresql://user:***@host/name."""
    for pattern in _PASSWORDS:
        text = pattern.sub(r"\1***", text)
    return text


class AbacaError(Exception):
    """Every error the library raises on purpose; no message holds the password of an address."""

    def __init__(self, message: str) -> None:
        super().__init__(without_passwords(message))


class BusyError(AbacaError):
    """The server cannot answer now: the queue is full, or its store cannot be reached.

    `seconds` is how long the caller should wait before the next attempt.
    """

    def __init__(self, message: str, seconds: int = 1) -> None:
        super().__init__(message)
        self.seconds = seconds


class UserError(AbacaError):
    """The user's mistake; its message states what is wrong, where, and what to do.

    Options in it are in backquotes as Python spells them, like `min_user=3`; the command line shows them as flags.
    """

    reported: bool = False
    """Whether another process of the same run shows it."""


class LogError(UserError):
    """The interaction log cannot be read as it is."""


class SpecError(UserError):
    """An encoder, output layer or option that makes no sense."""


class FetchError(UserError):
    """A public data set that cannot be downloaded, verified or unpacked."""


class SequencesError(UserError):
    """A prepared folder that is missing, damaged or of another version."""


class TrainingError(UserError):
    """Training that cannot continue with its options."""


class DivergedError(TrainingError):
    """Training whose loss, weights or scores are not finite any more."""


class ProcessError(UserError):
    """Processes that train together cannot reach each other any more."""


class ModelError(UserError):
    """A model directory that is missing, damaged or of another version."""


class StoreError(UserError):
    """A store of events that cannot be opened or is of another version."""


class QueryError(UserError):
    """A question that a model cannot answer."""
