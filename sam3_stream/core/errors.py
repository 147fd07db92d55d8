"""Every error that the package raises on purpose, in one tree.

::

    Sam3StreamError                 exit code 1 unless a subclass says otherwise
    ├── UsageError                  exit code 2: arguments or config that cannot be used as given
    │   ├── ConfigError             an unknown key, a wrong type, a value out of range
    │   ├── InputError              a source that cannot be opened or holds no pictures
    │   ├── OutputError             an output that exists, or a place that cannot be written
    │   ├── PromptError             a prompt that does not fit the picture or the model
    │   ├── ModelError              an unknown model, or weights that cannot be loaded
    │   └── NotFoundError           a stream, object or prompt that is not there (any more)
    └── RunError                    exit code 1: something broke while frames were flowing
        ├── DecodeError             a source broke in the middle; names what was lost
        ├── StreamError             a live source cannot be reached, or broke off
        ├── SinkError               an output could not be written any more (a full disk, …)
        ├── PromptNotReachedError   the stream ended before the time of a prompt
        ├── CapacityError           more objects than the session has room for
        └── StageError              any other exception out of a stage; carries the stage's name

A message says what was expected, what came, and what to do about it, in one line.
"""

from __future__ import annotations


class Sam3StreamError(Exception):
    """Base of every error raised on purpose. `exit_code` is what the command returns."""

    exit_code = 1


class UsageError(Sam3StreamError):
    """Arguments or config that cannot be used as given."""

    exit_code = 2


class ConfigError(UsageError):
    """An unknown key, a wrong type or a value out of range."""


class InputError(UsageError):
    """A source that cannot be opened or that holds no pictures."""


class OutputError(UsageError):
    """An output that exists already, or a place that cannot be written."""


class PromptError(UsageError):
    """A prompt that does not fit the picture or the model."""


class ModelError(UsageError):
    """An unknown model, or weights that cannot be loaded."""


class NotFoundError(UsageError):
    """A stream, object or prompt that is not there, or not any more."""


class RunError(Sam3StreamError):
    """Something broke while frames were flowing."""


class DecodeError(RunError):
    """A source broke in the middle. What decoded before has been delivered."""


class StreamError(RunError):
    """A live source cannot be reached, or broke off.

    Args:
        message: What is wrong and what to do, without credentials.
        lasting: Whether it stays so until a person changes something: a wrong password, an unknown path.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class SinkError(RunError):
    """An output could not be written any more."""


class PromptNotReachedError(RunError):
    """The stream ended before the time of a prompt."""


class CapacityError(RunError):
    """More objects than the session has room for."""


class StageError(RunError):
    """An unexpected exception out of a stage; the cause is chained.

    Args:
        stage: Name of the stage, such as ``"memory_tracker"``.
        cause: The exception that the stage raised.
    """

    def __init__(self, stage: str, cause: BaseException) -> None:
        super().__init__(f"the {stage} stage failed: {type(cause).__name__}: {cause}")
        self.stage = stage
        self.__cause__ = cause
