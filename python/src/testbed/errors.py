"""What can go wrong, by the exit codes of the command line."""

from __future__ import annotations

from typing import Any, Optional


class TestbedError(Exception):
    """The command failed (exit code 1). Its text is what the command said last."""

    __test__ = False  # for pytest, which takes the name for a test's


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
