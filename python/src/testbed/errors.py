"""The exceptions, one for each exit code of the command line."""

from __future__ import annotations

from typing import Any, Dict, Optional


class TestbedError(Exception):
    """The command failed (exit code 1). The text is the last message of the command.

    file, line, field: the place of the error; fix: what to do about it. Each is None if the
    command does not report it.
    """

    __test__ = False  # for pytest, which takes the name for a test's

    file: Optional[str] = None
    line: Optional[int] = None
    field: Optional[str] = None
    fix: Optional[str] = None

    def _at(self, error: Dict[str, Any]) -> "TestbedError":
        """Returns the error itself, with the place that a command has printed with --json."""
        self.file, self.line, self.field, self.fix = (error.get(name) for name in ("file", "line", "field", "fix"))
        return self


class UsageError(TestbedError):
    """The call is wrong, or the scenario is not valid (exit code 2). The text names the field
    and the allowed values."""


class InvalidResult(TestbedError):
    """The run ended, but its result is not valid (exit code 3): the run is incomplete, workers
    ended with different bytes, or the network did not match its plan.

    result: the result that the command printed in spite of this, or None.
    """

    def __init__(self, message: str, result: Optional[Any] = None) -> None:
        super().__init__(message)
        self.result = result


class Unsupported(TestbedError):
    """This machine cannot do what was asked (exit code 4). The text says what is missing, and
    how to get it."""

    def __init__(self, message: str, printed: bytes = b"") -> None:
        super().__init__(message)
        self._printed = printed  # by the command, before it said so
