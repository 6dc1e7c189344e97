"""Membership policies in Python, as programs that Testbed asks.

    import testbed as tb

    class Patience(tb.Policy):
        '''Waits until a share of the members has arrived, then a little longer.'''

        share: float = 0.75
        longer: Annotated[float, tb.Range(0.05, 4, log=True)] = 0.5

        def deadline(self, round):
            if round.deadline is None and round.arrived >= tb.share(self.share, len(round.members)):
                return round.now + int(self.longer * (round.now - round.start))

        def enough(self, round):
            return round.overdue

    tb.compare("persistent_straggler", ["baseline", Patience(longer=1)], world="sim")

A file that ends with `Patience.main()` is such a program for the command line, too:
`testbed compare … --policy baseline,program:./patience.py:longer=1`.
"""

from __future__ import annotations

import copy
import inspect
import json
import math
import os
import shutil
import socket
import sys
import tempfile
import threading
import traceback
import typing
from dataclasses import dataclass, field
from typing import IO, Any, Callable, ClassVar, Dict, List, Mapping, Optional, Tuple, Union

VERSION = 1  # of the protocol: docs/policies.md


@dataclass
class Deadline:
    """The time at which the running round closes if enough members have arrived.

    at: in microseconds of scenario time, not before round.now.
    numbers: the numbers that the deadline follows from. They are recorded, and shown in reports.
    """

    at: int
    numbers: Dict[str, float] = field(default_factory=dict)


@dataclass
class Member:
    """A member for which the running round counts.

    id: the number of the worker.
    arrived: the time of its arrival (µs); None if it has not arrived in time.
    began: the time at which it began the inner steps of the round (µs), or None.
    lag: the delay of this beginning because the worker had to catch up (µs).
    misses: the number of consecutive rounds that closed without it.
    """

    id: int
    arrived: Optional[int] = None
    began: Optional[int] = None
    lag: int = 0
    misses: int = 0


@dataclass
class Round:
    """The running round, as a policy sees it. Times are in microseconds of scenario time.

    number: the number of the round, from 1.
    now: the time of the question.
    start: the time at which the round began.
    members: the members for which the round counts, in the order of their ids.
    arrived: the number of members that have arrived in time.
    first: the time of the first arrival, or None.
    deadline: the current deadline, or None.
    overdue: whether the deadline has passed.
    seed: the seed of the scenario. Derive random numbers from the seed and the number.
    min_slack: the least time from the first arrival to a deadline; 0 on churn's simulated
        network.
    """

    number: int
    now: int
    start: int
    members: List[Member]
    arrived: int
    first: Optional[int]
    deadline: Optional[Deadline]
    overdue: bool
    seed: int
    min_slack: int


@dataclass(frozen=True)
class Range:
    """The range in which tune searches a parameter, from low to high. With log, tune searches by
    the logarithm. With of="round", low and high are multiples of the time that the inner steps
    of a round take. With of="members", they are multiples of the number of workers."""

    low: float
    high: float
    log: bool = False
    of: Optional[str] = None


def share(fraction: float, members: int) -> int:
    """⌈fraction × members⌉, and at least 1. A small term keeps a product such as 0.7 × 10 from
    being rounded up by its binary representation."""
    return max(1, math.ceil(fraction * members - 1e-9))


_KINDS = {int: "int", float: "float", bool: "bool", str: "string"}


@dataclass
class _Parameter:
    kind: type
    default: Any
    range: Optional[Range]

    def described(self, name: str) -> Dict[str, Any]:
        out = {"name": name, "type": _KINDS[self.kind], "default": self.default}
        if self.range is not None:
            given = {"low": self.range.low, "high": self.range.high, "log": self.range.log, "of": self.range.of}
            out["range"] = {k: v for k, v in given.items() if v not in (None, False)}
        return out


class Policy:
    """Decides when a round closes, and what happens to members that arrive too late.

    Class variables with a type (int, float, bool, str) and a default are parameters.
    Annotated[float, Range(…)] makes tune search a parameter. Each run uses a new copy of the
    instance, so other attributes do not survive from run to run. A policy must answer only
    from its arguments. It must use no clock, and no random numbers except from Round.seed.

    Override the methods that differ from the policy baseline, which waits for all members.

    time_limit: the time that an answer may take, in seconds.
    """

    time_limit: ClassVar[float] = 10

    def __init__(self, **parameters: Any) -> None:
        known = self.parameters()
        for name, value in parameters.items():
            if name not in known:
                others = "its parameters are " + ", ".join(known) if known else "it has no parameters"
                raise TypeError("%s has no parameter %s; %s" % (type(self).__name__, name, others))
            setattr(self, name, _typed(name, value, known[name].kind))
        problem = self.validate()
        if problem:
            raise ValueError(problem)

    def validate(self) -> Optional[str]:
        """The problem with the parameters and its fix, or None."""
        return None

    def deadline(self, round: Round) -> Union[Deadline, int, None]:
        """Returns a deadline that holds from now on, or None to keep the current deadline. Testbed
        asks when a round begins and at every event in the round, until the deadline has passed."""
        return None

    def enough(self, round: Round) -> Union[bool, Tuple[int, bool]]:
        """Returns whether the round, which has at least one arrival, may close without the missing
        members. To record the number of arrivals that were needed, return (needed, enough)."""
        return False

    def late(self, round: Round, member: Member) -> Union[bool, Tuple[int, bool]]:
        """Returns whether a member that missed the round is evicted. Otherwise it is sidelined. To
        record the number of tolerated consecutive misses, return (limit, evict)."""
        return False

    def closed(self, round: Round) -> None:
        """A round has closed. Rounds in which the coordinator was down are not reported."""

    def finishes_steps(self) -> bool:
        """Whether a sidelined member finishes its inner steps before it catches up."""
        return False

    @classmethod
    def parameters(cls) -> Dict[str, _Parameter]:
        """The parameters by name."""
        found: Dict[str, _Parameter] = {}
        for name, hint in _annotations(cls).items():
            if name.startswith("_") or typing.get_origin(hint) is ClassVar or not hasattr(cls, name):
                continue
            spread = None
            if hasattr(hint, "__metadata__"):
                spread = next((m for m in hint.__metadata__ if isinstance(m, Range)), None)
                hint = typing.get_args(hint)[0]
            if hint not in _KINDS:
                given = getattr(hint, "__name__", hint)
                raise TypeError("%s.%s has the type %s; a parameter must be an int, a float, a bool or a str" % (cls.__name__, name, given))
            found[name] = _Parameter(hint, _typed(name, getattr(cls, name), hint), spread)
        return found

    @classmethod
    def main(cls) -> None:
        """Answers as a program that Testbed asks, if this file is run as a program."""
        if sys._getframe(1).f_globals.get("__name__") == "__main__":
            sys.exit(_serve(cls(), sys.stdin.buffer, sys.stdout.buffer, lambda _: traceback.print_exc()))

    def __repr__(self) -> str:
        given = ("%s=%r" % (name, getattr(self, name)) for name in self.parameters())
        return "%s(%s)" % (type(self).__name__, ", ".join(given))


def _annotations(cls: type) -> Dict[str, Any]:
    """The annotations of a class and of its base classes. typing.get_type_hints fails for classes
    of a module that is not imported, such as runpy's modules."""
    found: Dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        own = inspect.get_annotations(base) if hasattr(inspect, "get_annotations") else base.__dict__.get("__annotations__", {})
        module = sys.modules.get(base.__module__)
        for name, hint in own.items():
            found[name] = eval(hint, {**vars(typing), **(vars(module) if module else {})}) if isinstance(hint, str) else hint
    return found


#: What the verbs take for a policy: "straggler:k=5", or an instance of a Policy.
PolicyLike = Union[str, Policy]


def _typed(name: str, value: Any, kind: type) -> Any:
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or kind is int and isinstance(value, bool):
        raise TypeError("%s is %r: it must be of the type %s" % (name, value, kind.__name__))
    return value


_ASKED = ("deadline", "enough", "late", "closed", "finishes_steps")


class _Answerer:
    """Answers the questions of one process of Testbed."""

    def __init__(self, policy: Policy) -> None:
        self._given, self._policy = policy, policy
        self._members: Dict[int, Member] = {}
        self._seed = self._slack = 0

    def answer(self, q: Mapping[str, Any]) -> Dict[str, Any]:
        ask = q["ask"]
        if ask == "hello":
            return self._hello(q)
        if ask == "reset":
            return self._reset(q)
        if ask == "finishes_steps":
            return {"finishes_steps": bool(self._policy.finishes_steps())}
        r = self._round(q)
        if ask == "deadline":
            d = self._policy.deadline(r)
            if d is None:
                return {}
            if not isinstance(d, Deadline):
                d = Deadline(d)
            return {"deadline": {"at_us": _whole(d.at, "deadline", " of microseconds"), "numbers": {k: _number(v) for k, v in d.numbers.items()}}}
        if ask == "enough":
            needed, enough = _pair(self._policy.enough(r), "number of needed arrivals")
            return {"enough": enough, "needed": needed}
        if ask == "late":
            limit, evict = _pair(self._policy.late(r, _member(q["member"])), "number of tolerated misses")
            return {"evict": evict, "limit": limit}
        if ask == "closed":
            self._policy.closed(r)
            return {}
        raise ValueError("unknown question %r; this package speaks version %d of the protocol" % (ask, VERSION))

    def _hello(self, q: Mapping[str, Any]) -> Dict[str, Any]:
        cls = type(self._given)
        answers = [a for a in _ASKED if getattr(cls, a) is not getattr(Policy, a)]
        described = []
        for name, p in cls.parameters().items():
            p.default = _typed(name, getattr(self._given, name), p.kind)
            described.append(p.described(name))
        return {"version": VERSION, "name": cls.__name__, "answers": answers, "parameters": described, "time_limit_s": cls.time_limit}

    def _reset(self, q: Mapping[str, Any]) -> Dict[str, Any]:
        self._members.clear()
        self._seed, self._slack = q["seed"], q["min_slack_us"]
        self._policy = copy.deepcopy(self._given)
        known = self._policy.parameters()
        for name, value in q.get("parameters", {}).items():
            setattr(self._policy, name, _typed(name, value, known[name].kind))
        problem = self._policy.validate()
        return {"error": problem} if problem else {}

    def _round(self, q: Mapping[str, Any]) -> Round:
        for m in q.get("members", ()):
            self._members[m["id"]] = _member(m)
        for id in q.get("gone", ()):
            self._members.pop(id, None)
        r = q["round"]
        holds = r.get("deadline")
        return Round(
            r["number"], r["now_us"], r["start_us"], [self._members[id] for id in sorted(self._members)], r["arrived"], r.get("first_us"),
            Deadline(holds["at_us"], holds.get("numbers") or {}) if holds else None, r["overdue"], self._seed, self._slack,
        )  # fmt: skip


def _member(m: Mapping[str, Any]) -> Member:
    return Member(m["id"], m.get("arrived_us"), m.get("began_us"), m.get("lag_us", 0), m.get("misses", 0))


def _pair(answer: Union[bool, Tuple[int, bool]], what: str) -> Tuple[int, bool]:
    if isinstance(answer, tuple):
        return _whole(answer[0], what), bool(answer[1])
    return 0, bool(answer)


def _whole(value: Any, what: str, of: str = "") -> int:
    """A whole number; numpy's whole numbers are allowed."""
    number: Optional[int]
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value:
        raise ValueError("the %s is %r: it must be a whole number%s" % (what, value, of))
    return number


def _number(value: Any) -> Union[int, float]:
    return value if isinstance(value, (int, float)) else float(value)


def _serve(policy: Policy, questions: "IO[bytes]", answers: "IO[bytes]", heard: Callable[[Exception], None]) -> int:
    """Answers until no further question can come. An error ends the run that asks, and is
    reported here, too."""
    one = _Answerer(policy)
    for line in questions:
        q = json.loads(line)
        try:
            a = one.answer(q)
        except Exception as err:
            heard(err)
            a = {"error": "%s: %s" % (type(err).__name__, err)}
        a["n"] = q["n"]
        answers.write(json.dumps(a, separators=(",", ":")).encode() + b"\n")
        answers.flush()
    return 0


class _Served:
    """Policies of this process, each behind a socket to which Testbed connects."""

    def __init__(self, policies: typing.Sequence[PolicyLike]) -> None:
        self.names: List[str] = []
        self.labels: Dict[str, str] = {}  # a name as the program knows it, and what people call it
        self.failed: List[Exception] = []  # what policies have raised
        self._dir: Optional[str] = None
        self._sockets: List[socket.socket] = []
        for i, p in enumerate(policies):
            self.names.append(p if isinstance(p, str) else self._serve(p, i))

    def _serve(self, policy: Policy, i: int) -> str:
        if not isinstance(policy, Policy):
            raise TypeError("%r is not a policy; give a name such as 'straggler:k=5', or an instance of a testbed.Policy" % (policy,))
        if os.name != "posix":
            raise OSError("a policy object needs Unix sockets, which this system lacks; write the policy to a file, and name it as program:FILE")
        if self._dir is None:
            self._dir = tempfile.mkdtemp(prefix="testbed-")
        folder = os.path.join(self._dir, str(i))
        os.mkdir(folder)
        path = os.path.join(folder, type(policy).__name__)
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.bind(path)
        s.listen(64)
        self._sockets.append(s)
        # As it is now: what is asked later is of a copy.
        threading.Thread(target=self._accept, args=(s, copy.deepcopy(policy)), daemon=True).start()
        name = "program:" + path.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
        self.labels[name] = _label(policy)
        return name

    def _accept(self, s: socket.socket, policy: Policy) -> None:
        while True:
            try:
                peer, _ = s.accept()
            except OSError:
                return  # closed
            threading.Thread(target=self._talk, args=(peer, policy), daemon=True).start()

    def _talk(self, peer: socket.socket, policy: Policy) -> None:
        try:
            with peer, peer.makefile("rb") as questions, peer.makefile("wb") as answers:
                _serve(copy.deepcopy(policy), questions, answers, self.failed.append)
        except OSError:
            pass  # the asker has gone

    def given(self) -> Dict[str, str]:
        """The names that users give to the policies, by the names that the command uses."""
        return {label: name for name, label in self.labels.items()}

    def close(self) -> None:
        for s in self._sockets:
            s.close()
        if self._dir is not None:
            shutil.rmtree(self._dir, ignore_errors=True)

    def __enter__(self) -> "_Served":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def renamed(self, text: bytes) -> bytes:
        """The output of the command, with the users' names of the policies."""
        for name, label in self.labels.items():
            path = name[len("program:") :]
            told = "policy's program %s (%s)" % (path, os.path.basename(path))
            text = text.replace(told.encode(), b"policy " + label.encode()).replace(name.encode(), label.encode())
        return text


def _label(policy: Policy) -> str:
    """The name of a policy in results: its class, and the parameters that differ from the defaults."""
    text = type(policy).__name__
    for name, p in policy.parameters().items():
        value = getattr(policy, name)
        if value != p.default:
            text += ":%s=%s" % (name, json.dumps(value) if isinstance(value, bool) else value)
    return text
