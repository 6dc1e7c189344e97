"""What can go wrong, by the exit codes of the command line."""

from __future__ import annotations

from typing import Any, Dict, Optional


class TestbedError(Exception):
    """The command failed (exit code 1). Its text is what the command said last.

    file, line, field: where the error is; fix: what to do about it. Each is None where
    the command does not say.
    """

    __test__ = False  # for pytest, which takes the name for a test's

    file: Optional[str] = None
    line: Optional[int] = None
    field: Optional[str] = None
    fix: Optional[str] = None

    def _at(self, error: Dict[str, Any]) -> "TestbedError":
        """Itself, with the place that a command has printed with --json."""
        self.file, self.line, self.field, self.fix = (error.get(name) for name in ("file", "line", "field", "fix"))
        return self


class UsageError(TestbedError):
    """Wrong usage, or a scenario that is not valid (exit code 2). One error names
    the field and what would be right."""


class InvalidResult(TestbedError):
    """It ran, but its result is not valid (exit code 3): the run is not complete,
    workers ended with different bytes, or the network was not what it claimed to be.

    result: what came of it all the same, or None.
    """

    def __init__(self, message: str, result: Optional[Any] = None) -> None:
        super().__init__(message)
        self.result = result


class Unsupported(TestbedError):
    """This machine cannot do it (exit code 4); the text says what is missing and how to
    get it."""

    def __init__(self, message: str, printed: bytes = b"") -> None:
        super().__init__(message)
        self._printed = printed  # by the command, before it said so
