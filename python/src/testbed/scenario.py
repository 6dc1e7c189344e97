"""Scenarios: descriptions of runs, with workers, links and injects, as in scenario files."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import tempfile
import typing
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Type, TypeVar, Union

from . import _binary, _fields
from ._fields import Inject, LinkInject, ScenarioFields
from .errors import TestbedError, UsageError

T = TypeVar("T")

__all__ = [
    "Scenario", "ScenarioLike", "library",
    "Crash", "Leave", "Slow", "Restore", "Pause", "Resume", "Partition", "ClearPartition",
    "CoordinatorCrash", "Restart", "Fail", "Preempt", "FailReduce",
    "LinkChange", "LinkTrace", "Cut", "Refuse", "Flap",
]  # fmt: skip


class Scenario(ScenarioFields):
    """A scenario, with the fields of its file.

    >>> sc = Scenario.library("persistent_straggler")
    >>> sc.workers[3].inner_step_mean
    1000
    >>> sc.real.links.default.rate_up = "10mbit"

    The program checks the fields when the scenario is used, or in validate(). An error names
    the field.

    base: the folder of the files that the scenario names, such as traces and trainers.
    """

    base: Optional[str] = None

    @classmethod
    def library(cls, name: str) -> "Scenario":
        """The scenario of the library with this name. library() lists the names."""
        sc = cls._read(name)
        sc.name = name
        return sc

    @classmethod
    def from_file(cls, path: Union[str, "os.PathLike[str]"]) -> "Scenario":
        """The scenario in a file, in JSON or YAML. churn's files are allowed, too."""
        path = Path(path)
        if not path.exists():
            raise FileNotFoundError("there is no file %s" % path)
        sc = cls._read(str(path.resolve()))
        sc.base = str(path.resolve().parent)
        if sc.name is None:
            sc.name = path.stem
        return sc

    @classmethod
    def from_dict(cls, data: Dict[str, Any]) -> "Scenario":
        """The scenario of a dict with the fields of a file. The fields are not checked yet."""
        return _decode(cls, data, "")

    @classmethod
    def _read(cls, name: str) -> "Scenario":
        # Not checked by the name alone: the program knows files from the library's names.
        return cls.from_dict(json.loads(_binary.call(["convert", name, "--to", "json"])))

    def to_dict(self) -> Dict[str, Any]:
        """The fields as in a file, without the fields that are not given."""
        data = _encode(self)
        assert isinstance(data, dict)
        return data

    def to_file(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes a scenario file. The format is YAML if the name ends in .yaml or .yml, and JSON otherwise."""
        kind = "yaml" if str(path).endswith((".yaml", ".yml")) else "json"
        target = str(Path(path).absolute())
        with self._file() as name:
            _binary.call(["convert", name, "--to", kind, "--out", target])

    def validate(self) -> None:
        """Raises UsageError if a field is missing, has a wrong type or is out of range."""
        with self._file() as name:
            _binary.call(["convert", name, "--to", "json"])

    def copy(self) -> "Scenario":
        """An independent copy."""
        return copy.deepcopy(self)

    def _names_files(self) -> bool:
        return "file" in json.dumps(_keys(self.to_dict())) or self.train is not None

    @contextmanager
    def _file(self) -> Iterator[str]:
        """A temporary file of the scenario. It is in the folder of the files that the scenario names,
        because their paths start from there."""
        data = self.to_dict()
        data.setdefault("name", "scenario")
        folder = (self.base or os.getcwd()) if self._names_files() else None
        fd, name = tempfile.mkstemp(prefix=".testbed-", suffix=".json", dir=folder)
        try:
            with os.fdopen(fd, "w", encoding="utf-8") as file:
                json.dump(data, file)
            try:
                yield name
            except TestbedError as err:
                raise _renamed(err, name, data["name"]) from None
        finally:
            os.unlink(name)

    def __repr__(self) -> str:
        return "<Scenario %s: %d workers, %s rounds of %s inner steps>" % (self.name or "", len(self.workers), self.target_outer_steps, self.inner_steps)


#: What the verbs take: a Scenario, the name of one of the library, or a file's path.
ScenarioLike = Union[Scenario, str, "os.PathLike[str]"]


def _renamed(err: TestbedError, file: str, name: str) -> TestbedError:
    """The error with the scenario's name in place of the name of a temporary file."""
    if err.args:
        err.args = (str(err.args[0]).replace(file, name).replace(Path(file).name, name), *err.args[1:])
    return err


@contextmanager
def file_of(scenario: ScenarioLike) -> Iterator[str]:
    """The name by which the program finds a scenario."""
    if isinstance(scenario, Scenario):
        with scenario._file() as name:
            yield name
        return
    yield str(scenario)


@dataclasses.dataclass
class LibraryEntry:
    """A scenario of the library: its name and its description."""

    name: str
    description: str


def library() -> List[LibraryEntry]:
    """The scenarios of the library."""
    return [LibraryEntry(s["name"], s.get("description", "")) for s in json.loads(_binary.call(["list", "--json"]))]


def _name(attribute: str) -> str:
    """The name of a field in a file. from_ stands for from, which is a Python keyword."""
    return attribute[:-1] if attribute.endswith("_") else attribute


def _keys(data: Any) -> List[str]:
    if isinstance(data, dict):
        return [k for k in data] + [k for v in data.values() for k in _keys(v)]
    if isinstance(data, list):
        return [k for v in data for k in _keys(v)]
    return []


def _encode(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        out = {}
        for f in dataclasses.fields(value):
            v = getattr(value, f.name)
            if v is None:
                continue
            inner = _encode(v)
            # A section that nothing is said in is left out.
            if inner == {} and f.name in ("real", "policy", "links", "default", "all_reduce"):
                continue
            out[_name(f.name)] = inner
        return out
    if isinstance(value, (list, tuple)):
        return [_encode(v) for v in value]
    if isinstance(value, dict):
        return {str(k): _encode(v) for k, v in value.items()}
    if hasattr(value, "item") and not isinstance(value, (str, bytes)):  # a number of numpy's
        return value.item()
    return value


def _decode(cls: Type[T], data: Any, path: str) -> T:
    if not isinstance(data, dict):
        raise UsageError("%s must be an object with fields" % (path or "a scenario"))
    hints = typing.get_type_hints(cls, vars(_fields))
    known = {_name(f.name): f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    values = {}
    for name, value in data.items():
        if name not in known:
            raise UsageError("%s: unknown field" % (path + "." + name if path else name))
        values[known[name]] = _decode_value(hints[known[name]], value, path + "." + name if path else name)
    missing = [
        f.name
        for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING and f.name not in values
    ]
    if missing:
        names = ", ".join(path + "." + m if path else m for m in missing)
        raise UsageError("%s %s" % (names, "is missing: add it" if len(missing) == 1 else "are missing: add them"))
    return cls(**values)


def _decode_value(hint: Any, value: Any, path: str) -> Any:
    args = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is Union and type(None) in args:
        inner = [a for a in args if a is not type(None)]
        return None if value is None else (_decode_value(inner[0], value, path) if len(inner) == 1 else value)
    if origin in (list, List) and isinstance(value, list):
        return [_decode_value(args[0], v, "%s[%d]" % (path, i)) for i, v in enumerate(value)]
    if origin in (dict, Dict) and isinstance(value, dict):
        return {k: _decode_value(args[1], v, path + "." + k) for k, v in value.items()}
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _decode(hint, value, path)
    return value


# The injects of workers and of the coordinator. Times are microseconds of scenario time,
# or text with a unit, such as "30ms". docs/scenarios.md says what each does, simulated and on a real network.

Time = Union[int, str]


class Crash(Inject):
    """The worker dies without notice."""

    def __init__(self, id: int, at: Time) -> None:
        super().__init__("Crash", at, id=id)


class Leave(Inject):
    """The worker leaves in good order, after the reduction in which it takes part."""

    def __init__(self, id: int, at: Time) -> None:
        super().__init__("Leave", at, id=id)


class Slow(Inject):
    """Inner steps that begin from now on take factor times as long."""

    def __init__(self, id: int, at: Time, factor: float) -> None:
        super().__init__("Slow", at, id=id, factor=factor)


class Restore(Inject):
    """The end of Slow."""

    def __init__(self, id: int, at: Time) -> None:
        super().__init__("Restore", at, id=id)


class Pause(Inject):
    """The worker stalls, and sends nothing except, if asked for, heartbeats."""

    def __init__(self, id: int, at: Time, heartbeats: Optional[bool] = None) -> None:
        super().__init__("Pause", at, id=id, heartbeats=heartbeats)


class Resume(Inject):
    """The end of Pause."""

    def __init__(self, id: int, at: Time) -> None:
        super().__init__("Resume", at, id=id)


class Partition(Inject):
    """The given workers are cut off from all other nodes."""

    def __init__(self, ids: List[int], at: Time) -> None:
        super().__init__("Partition", at, ids=ids)


class ClearPartition(Inject):
    """The end of Partition, for the given workers or for all workers."""

    def __init__(self, at: Time, ids: Optional[List[int]] = None) -> None:
        super().__init__("ClearPartition", at, ids=ids)


class CoordinatorCrash(Inject):
    """The coordinator dies without notice. A new coordinator starts after the time down."""

    def __init__(self, at: Time, down: Time, forgets: Optional[bool] = None) -> None:
        super().__init__("CoordinatorCrash", at, down=down, forgets=forgets)


class Restart(Inject):
    """The worker crashes. A new process of the worker begins after the time after."""

    def __init__(self, id: int, at: Time, after: Optional[Time] = None, lighthouse: Optional[int] = None) -> None:
        super().__init__("Restart", at, id=id, after=after, lighthouse=lighthouse)


class Fail(Inject):
    """The worker gives up, and reports that it gives up."""

    def __init__(self, id: int, at: Time) -> None:
        super().__init__("Fail", at, id=id)


class Preempt(Inject):
    """The worker is told that it will be killed at the end of the notice."""

    def __init__(self, id: int, at: Time, notice: Optional[Time] = None) -> None:
        super().__init__("Preempt", at, id=id, notice=notice)


class FailReduce(Inject):
    """The worker's reduction fails: the current one, or the next one."""

    def __init__(self, id: int, at: Time, alone: Optional[bool] = None) -> None:
        super().__init__("FailReduce", at, id=id, alone=alone)


# What happens to links, in real.injects; docs/links.md has the whole.


class LinkChange(LinkInject):
    """From at to until, a worker's access link (id) or a path (between, or from_ and to) has other
    properties: rate_up="1mbit", one_way_delay="80ms", loss="2%", …"""

    def __init__(self, at: Time, until: Optional[Time] = None, *, from_: Optional[str] = None, **properties: Any) -> None:
        super().__init__("Link", at, until=until, **_from(from_, properties))


class LinkTrace(LinkInject):
    """One direction ("up" or "down") of a worker's access link has the rates of a trace, a file in
    mahimahi's format."""

    def __init__(self, id: int, at: Time, direction: str, file: str, until: Optional[Time] = None) -> None:
        super().__init__("LinkTrace", at, until=until, id=id, direction=direction, file=file)


class Cut(LinkInject):
    """A path delivers nothing."""

    def __init__(self, at: Time, until: Optional[Time] = None, *, from_: Optional[str] = None, **what: Any) -> None:
        super().__init__("Cut", at, until=until, **_from(from_, what))


class Refuse(LinkInject):
    """Two nodes, or a worker and all other nodes, cannot send to each other. The senders get an error at once."""

    def __init__(self, at: Time, until: Optional[Time] = None, *, from_: Optional[str] = None, **what: Any) -> None:
        super().__init__("Refuse", at, until=until, **_from(from_, what))


class Flap(LinkInject):
    """A cut of the length down that recurs in every period."""

    def __init__(self, at: Time, period: Time, down: Time, until: Optional[Time] = None, *, from_: Optional[str] = None, **what: Any) -> None:
        super().__init__("Flap", at, until=until, period=period, down=down, **_from(from_, what))


def _from(from_: Optional[str], properties: Dict[str, Any]) -> Dict[str, Any]:
    if from_ is not None:
        properties["from_"] = from_
    return properties
