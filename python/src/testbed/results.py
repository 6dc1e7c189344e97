"""The results of runs, comparisons, sweeps and searches. Times are in microseconds of scenario
time. `data` is the whole result, as the command line prints it with --json. docs/results.md
explains each field."""

from __future__ import annotations

import html
import json
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from .errors import TestbedError

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas



@dataclass
class Event:
    """One line of the record.

    t: the time since the start of the run (µs).
    type: such as "arrive", "round_close" or "evict"; docs/record-fields.md#types-of-events lists
        all types.
    worker: the number of the worker; None if the event concerns the whole run or the store.
    round: the number of the round; 0 if the event concerns no round.
    data: the whole line, with the further fields of the type.
    """

    t: int
    type: str
    worker: Optional[int]
    round: int
    data: Dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["data"][name]
        except KeyError:
            fields = ", ".join(self.__dict__.get("data", {}))
            raise AttributeError("an event of type %s has no field %s; its fields are %s" % (self.__dict__.get("type"), name, fields)) from None

    @classmethod
    def _of(cls, line: Dict[str, Any]) -> "Event":
        node = line.get("node", "")
        worker = int(node[1:]) if node[:1] == "w" and node[1:].isdigit() else None
        return cls(line["t_us"], line["type"], worker, line.get("round", 0), line)


class Events(Sequence[Event]):
    """The events of a run. They are read from the record at their first use."""

    def __init__(self, path: Optional[Path], keep: object = None) -> None:
        self._path, self._keep = path, keep
        self._all: Optional[List[Event]] = None

    def _read(self) -> List[Event]:
        if self._all is None:
            if self._path is None or not self._path.exists():
                raise TestbedError("this run has no record of events%s" % (" (%s)" % self._path if self._path else "; simulate the scenario with trace=True"))
            with open(self._path, encoding="utf-8") as file:
                self._all = [Event._of(json.loads(line)) for line in file if line.endswith("\n")]  # a last line may be cut off
        return self._all

    def __len__(self) -> int:
        return len(self._read())

    def __getitem__(self, i: Any) -> Any:
        return self._read()[i]

    def __iter__(self) -> Iterator[Event]:
        return iter(self._read())

    def of_type(self, *types: str) -> List[Event]:
        """The events of some types, such as "sideline" and "evict"."""
        return [e for e in self if e.type in types]

    def to_frame(self) -> "pandas.DataFrame":
        """A frame with a row for each event: t_us, type, worker, round, and the fields of its type."""
        rows = []
        for e in self:
            row = {"t_us": e.t, "type": e.type, "worker": e.worker, "round": e.round}
            row.update({k: v for k, v in e.data.items() if k not in row and k != "node"})
            rows.append(row)
        return _frame(rows, ["worker"])

    def __repr__(self) -> str:
        return "<%s>" % _count(len(self), "event")


@dataclass
class Loss:
    """The losses of a round. train is the mean over the steps of the participants. validation is
    the loss of the outer state after the round. A loss that was not computed is None."""

    train: Optional[float] = None
    validation: Optional[float] = None


@dataclass
class Round:
    """A round. Arrivals counted from start to close. The outer step was done at end (µs).

    participants, late: the numbers of the workers.
    reduce: the duration of the all-reduce (µs).
    bytes_sent: the bytes that all workers sent to the streams of the ring.
    hash: the hash of the mean; None in a simulation that trained nothing.
    model_hash: the hash of the outer state; None in a simulation that trained nothing.
    """

    number: int
    start: int
    close: int
    end: int
    participants: List[int]
    late: List[int]
    reduce: int
    bytes_sent: int
    hash: Optional[str]
    model_hash: Optional[str]
    loss: Optional[Loss]


@dataclass
class Decision:
    """A worker was sidelined or evicted, or arrived in time again.

    reason: the rule of an eviction, such as "straggler" or "heartbeat".
    why: the rule, and the numbers on which it decided.
    """

    round: int
    worker: int
    reason: Optional[str]
    why: Optional[Dict[str, Any]]


@dataclass
class Fidelity:
    """Whether the network matched its plan: "valid", "suspect" or "invalid"."""

    verdict: str
    reasons: List[str]

    @property
    def ok(self) -> bool:
        return self.verdict == "valid"


class Result:
    """The result of one run, simulated or real."""

    def __init__(self, data: Dict[str, Any], trace: Optional[Path] = None, keep: object = None) -> None:
        self.data = data
        if trace is None and data.get("dir"):
            trace = Path(data["dir"]) / "events.jsonl"
        #: What happened, in order; read when first asked for.
        self.events = Events(trace, keep)

    @property
    def scenario(self) -> str:
        """The name of the scenario."""
        return str(self.data["scenario"])

    @property
    def policy(self) -> str:
        """The policy as it was given, with its parameters."""
        return str(self.data["policy"])

    @property
    def world(self) -> str:
        """sim or real, or replay."""
        return str(self.data["world"])

    @property
    def world_name(self) -> str:
        """The world, but sim_links for simulations on the planned links."""
        name = self.data.get("world_name")
        if name is None:  # an older record
            name = "sim_links" if self.world == "sim" and self.links == "plan" else self.world
        return str(name)

    @property
    def links(self) -> str:
        """The link backend: user, htb or netem. Simulations have none (churn's network) or plan."""
        return str(self.data["links"])

    @property
    def seed(self) -> int:
        return int(self.data["seed"])

    @property
    def complete(self) -> bool:
        """Whether all outer steps were done before the horizon."""
        return bool(self.data["complete"])

    @property
    def wall_clock_us(self) -> int:
        """The time of the last outer step."""
        return int(self.data["wall_clock_us"])

    @property
    def outer_steps(self) -> int:
        return int(self.data["outer_steps"])

    @property
    def compute_fraction(self) -> float:
        """The share of the membership time that was spent in inner steps."""
        return float(self.data["compute_fraction"])

    @property
    def barrier_wait_fraction(self) -> float:
        """The share of the membership time that was spent waiting for a round to close."""
        return float(self.data["barrier_wait_fraction"])

    @property
    def joiner_stall_us(self) -> int:
        """The time that late joiners waited for the outer state."""
        return int(self.data["joiner_stall_us"])

    @property
    def work_lost(self) -> Optional[float]:
        """The share of the contributions that the workers could have made and that entered no outer step."""
        work = self.data.get("work")
        return None if work is None else float(work["lost"])

    @property
    def bit_identical(self) -> Optional[bool]:
        """Whether all workers ended every round with the same bytes; None if no bytes moved."""
        value = self.data["bit_identical"]
        return None if value is None else bool(value)

    @property
    def sidelined(self) -> List[Decision]:
        return _decisions(self.data["sidelined"])

    @property
    def evicted(self) -> List[Decision]:
        return _decisions(self.data["evicted"])

    @property
    def rejoined(self) -> List[Decision]:
        return _decisions(self.data["rejoined"])

    @property
    def fidelity(self) -> Fidelity:
        f = self.data["fidelity"]
        return Fidelity(f["verdict"], list(f.get("reasons") or []))

    @property
    def rounds(self) -> List[Round]:
        out = []
        for r in self.data["rounds"]:
            loss = r.get("loss")
            out.append(
                Round(
                    r["round"], r["start_us"], r["close_us"], r["end_us"], list(r["participants"]), list(r["late"]), r["reduce_us"], r["bytes_sent"],
                    r.get("hash"), r.get("model_hash"), Loss(loss.get("train"), loss.get("validation")) if loss else None,
                )
            )  # fmt: skip
        return out

    @property
    def dir(self) -> Optional[Path]:
        """The run directory; None for a simulation without a directory."""
        return Path(self.data["dir"]) if self.data.get("dir") else None

    @property
    def losses(self) -> List[Tuple[int, float]]:
        """The time (µs) and the validation loss at the start, if known, and after rounds. The list is
        empty if nothing was trained."""
        first = self.data.get("initial_loss")
        return ([] if first is None else [(0, first)]) + [(r.end, r.loss.validation) for r in self.rounds if r.loss is not None and r.loss.validation is not None]

    def to_frame(self, by: str = "round") -> "pandas.DataFrame":
        """A frame with a row for each round. by="worker" gives a row for each worker and round.
        by="event" gives a row for each event."""
        if by == "event":
            return self.events.to_frame()
        if by == "worker":
            return _frame(self._by_worker(), ["arrived_us", "began_us", "reduce_us"])
        if by != "round":
            raise ValueError('by is %r: it must be "round", "worker" or "event"' % (by,))
        rows = []
        for r in self.rounds:
            rows.append({
                "round": r.number, "start_us": r.start, "close_us": r.close, "end_us": r.end, "participants": len(r.participants), "late": len(r.late),
                "reduce_us": r.reduce, "bytes_sent": r.bytes_sent, "train_loss": r.loss.train if r.loss else None, "validation_loss": r.loss.validation if r.loss else None,
            })  # fmt: skip
        return _frame(rows)

    def _by_worker(self) -> List[Dict[str, Any]]:
        steps: Dict[Tuple[int, int], List[Event]] = {}
        arrived: Dict[Tuple[int, int], int] = {}
        reduced: Dict[Tuple[int, int], Any] = {}
        for e in self.events:
            if e.worker is None:
                continue
            at = (e.round, e.worker)
            if e.type == "step":
                steps.setdefault(at, []).append(e)
            elif e.type == "arrive":
                arrived.setdefault(at, e.t)
            elif e.type == "reduced":
                reduced[at] = e.data.get("duration_us")
        rows = []
        for r in self.rounds:
            everybody = {w for (n, w) in steps if n == r.number} | {w for (n, w) in arrived if n == r.number} | set(r.participants) | set(r.late)
            for w in sorted(everybody):
                of = steps.get((r.number, w), [])
                rows.append({
                    "round": r.number, "worker": w, "participant": w in r.participants, "late": w in r.late, "steps": len(of),
                    "began_us": of[0].t - of[0].data.get("duration_us", 0) if of else None, "compute_us": sum(e.data.get("duration_us", 0) for e in of),
                    "arrived_us": arrived.get((r.number, w)), "reduce_us": reduced.get((r.number, w)),
                })  # fmt: skip
        return rows

    def plot(self, kind: str = "timeline", ax: Optional["matplotlib.axes.Axes"] = None) -> "matplotlib.axes.Axes":
        """Draws a picture with matplotlib: "timeline" (the activity of every worker over time), or
        "loss" (the validation loss by wall-clock)."""
        from . import plots

        if kind == "timeline":
            return plots.timeline(self, ax)
        if kind == "loss":
            return plots.losses([self], ax)
        raise ValueError('kind is %r: it must be "timeline" or "loss"' % (kind,))

    def report(self, out: Optional[Union[str, Path]] = None) -> Path:
        """Writes the report, one HTML file, into the run directory or to out."""
        from . import verbs

        if self.dir is None:
            raise TestbedError("this result is not of a real run, so it has no directory; call report() of its comparison, or play the scenario with testbed.run")
        return verbs.report(self.dir, out=out)

    def __repr__(self) -> str:
        said = ["%s under %s (%s): %s µs" % (self.scenario, self.policy, self.world, format(self.wall_clock_us, ","))]
        if not self.complete:
            said.append("not complete")
        if self.world == "real":
            said.append(self.fidelity.verdict)
        return "<Result %s>" % ", ".join(said)

    def _repr_html_(self) -> str:
        left_out = ", ".join("w%d in round %d" % (d.worker, d.round) for d in self.sidelined) or "nobody"
        gone = ", ".join("w%d in round %d (%s)" % (d.worker, d.round, d.reason) for d in self.evicted) or "nobody"
        rows = [
            ("scenario", self.scenario), ("policy", self.policy), ("world", self.world), ("wall-clock", "%s µs" % format(self.wall_clock_us, ",")),
            ("outer steps", "%d%s" % (self.outer_steps, "" if self.complete else ", not complete")), ("compute", "%.1f %%" % (100 * self.compute_fraction)),
            ("sidelined", left_out), ("evicted", gone), ("fidelity", "; ".join([self.fidelity.verdict, *self.fidelity.reasons])),
        ]  # fmt: skip
        return _table(["", ""], rows)


def _decisions(rows: Iterable[Dict[str, Any]]) -> List[Decision]:
    return [Decision(r["round"], r.get("worker", r["id"]), r.get("reason"), r.get("why")) for r in rows]


@dataclass
class Estimate:
    """A median over seeds. With enough seeds it has a bootstrap interval.

    low, high, level: the interval. They are None if there is no interval; why gives the reason.
    """

    n: int
    median: float
    low: Optional[float]
    high: Optional[float]
    level: Optional[float]
    why: Optional[str]

    @classmethod
    def _of(cls, e: Dict[str, Any]) -> "Estimate":
        i = e.get("interval") or {}
        return cls(e["n"], e["median"], i.get("low"), i.get("high"), i.get("level"), e.get("why"))


class Comparison:
    """The results of several policies, simulated and on a real network."""

    def __init__(self, data: Dict[str, Any], given: Optional[Dict[str, str]] = None) -> None:
        self.data = data
        self._given = given or {}  # names that the record has for policies of this process
        #: As they were given; the first is the reference.
        self.policies: List[str] = list(data["policies"])
        #: By policy: simulated on churn's network, on the planned links, and measured;
        #: empty where the world was not played.
        self.sim = self._world("sim")
        self.sim_links = self._world("sim_links")
        self.real = self._world("real")

    def _world(self, name: str) -> Dict[str, Result]:
        return {p: self._result(name, p, r, 1) for p, r in (self.data.get(name) or {}).items()}

    def _result(self, world: str, policy: str, data: Dict[str, Any], seed: int) -> Result:
        if data.get("dir"):
            return Result(data)
        # Simulated runs have their record in the comparison's directory.
        name = {"sim": "sim-", "sim_links": "sim-links-"}.get(world)
        trace = None
        if name is not None and self.dir is not None:
            known = urllib.parse.quote(self._given.get(policy, policy), safe="$&+=:@")
            trace = self.dir / (name + known + ("" if seed == 1 else "-%d" % seed)) / "events.jsonl"
        return Result(data, trace)

    @property
    def scenario(self) -> str:
        return str(self.data["scenario"])

    @property
    def dir(self) -> Optional[Path]:
        return Path(self.data["dir"]) if self.data.get("dir") else None

    def results(self) -> List[Tuple[str, Result]]:
        """All runs of all seeds. Each run comes with the name of its world: sim, sim_links or real."""
        all_: List[Tuple[str, Result]] = []
        for world, more in (("sim", "sim_repeats"), ("sim_links", "sim_links_repeats"), ("real", "repeats")):
            all_ += [(world, r) for r in getattr(self, world).values()]
            for i, seed in enumerate(self.data.get(more) or []):
                all_ += [(world, self._result(world, p, r, i + 2)) for p, r in seed.items()]
        return all_

    def speedup(self, policy: Optional[str] = None, world: Optional[str] = None) -> float:
        """The reference's wall-clock divided by the policy's wall-clock. The default policy is the
        second one. With several seeds it is the median. The runs are the real ones if a real
        network was played, and otherwise the simulated ones."""
        name = policy if policy is not None else self.policies[1]
        if world is None:
            world = "real" if self.real else "sim"
        pairs: Dict[int, Dict[str, int]] = {}
        for w, r in self.results():
            if w == world and r.complete:
                pairs.setdefault(r.seed, {})[r.policy] = r.wall_clock_us
        ratios = sorted(by[self.policies[0]] / by[name] for by in pairs.values() if name in by and self.policies[0] in by)
        if not ratios:
            raise TestbedError("no seed has complete runs of both %s and %s in the world %s" % (self.policies[0], name, world))
        middle = len(ratios) // 2
        return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2

    @property
    def prediction_error(self) -> Dict[str, float]:
        """For each policy, (simulated − measured) ÷ measured wall-clock. The simulation is the one on
        the planned links if there is one. The dict is empty if the simulation or the real network
        was not played."""
        return dict(self.data.get("links_prediction_error") or self.data.get("prediction_error") or {})

    @property
    def valid(self) -> bool:
        """Whether all runs are complete, and no emulation is invalid."""
        return all(r.complete and r.fidelity.verdict != "invalid" for _, r in self.results())

    def to_frame(self) -> "pandas.DataFrame":
        """A frame with a row for each run: world, policy, seed, and the results."""
        rows = []
        for world, r in self.results():
            losses = r.losses
            rows.append({
                "world": world, "policy": r.policy, "seed": r.seed, "complete": r.complete, "wall_clock_us": r.wall_clock_us, "outer_steps": r.outer_steps,
                "compute_fraction": r.compute_fraction, "work_lost": r.work_lost, "sidelined": len(r.sidelined), "evicted": len(r.evicted),
                "bit_identical": r.bit_identical, "fidelity": r.fidelity.verdict, "loss": losses[-1][1] if losses else None,
            })  # fmt: skip
        return _frame(rows)

    def plot(self, kind: str = "trade-off", ax: Optional["matplotlib.axes.Axes"] = None) -> "matplotlib.axes.Axes":
        """Draws a picture with matplotlib: "trade-off" (wall-clock against work lost), "wall-clock" (a
        bar for each policy and world), or "loss" (the validation loss by wall-clock)."""
        from . import plots

        if kind == "trade-off":
            return plots.trade_off(self, ax)
        if kind == "wall-clock":
            return plots.wall_clocks(self, ax)
        if kind == "loss":
            return plots.losses([r for w, r in self.results() if w == ("real" if self.real else "sim_links")], ax)
        raise ValueError('kind is %r: it must be "trade-off", "wall-clock" or "loss"' % (kind,))

    def report(self, out: Optional[Union[str, Path]] = None) -> Path:
        """Writes the report, one HTML file, into the comparison's directory or to out."""
        from . import verbs

        if self.dir is None:
            raise TestbedError("this comparison has no directory, so there is no record for a report; load the comparison from its directory with testbed.load")
        return verbs.report(self.dir, out=out)

    def __repr__(self) -> str:
        worlds = [w for w in ("sim", "sim_links", "real") if getattr(self, w)]
        return "<Comparison of %s on %s: %s>" % (", ".join(self.policies), self.scenario, ", ".join(worlds))

    def _repr_html_(self) -> str:
        titles = {"sim": "simulated", "sim_links": "on planned links", "real": "measured"}
        worlds = [w for w in titles if getattr(self, w)]
        head = ["policy"] + [titles[w] for w in worlds] + ["speed-up", "work lost"]
        rows = []
        last = worlds[-1]
        for p in self.policies:
            of = [getattr(self, w)[p] for w in worlds]
            lost = of[-1].work_lost
            rows.append(
                [p]
                + ["%s µs%s" % (format(r.wall_clock_us, ","), "" if r.complete else " (not complete)") for r in of]
                + [self._speedup_text(p, last), "" if lost is None else "%.1f %%" % (100 * lost)]
            )
        return _table(head, rows)

    def _speedup_text(self, policy: str, world: str) -> str:
        if policy == self.policies[0]:
            return ""
        try:
            return "%.2f×" % self.speedup(policy, world)
        except TestbedError:
            return "–"


class Sweep:
    """The results of a grid of fields, seeds and policies. dir contains results.csv and the other files."""

    def __init__(self, data: Dict[str, Any], given: Optional[Dict[str, str]] = None) -> None:
        self.data = data
        self._people = {name: label for label, name in (given or {}).items()}
        self.policies: List[str] = list(data["policies"])

    @property
    def dir(self) -> Optional[Path]:
        return Path(self.data["dir"]) if self.data.get("dir") else None

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """A dict for each point: the fields that were set, by their paths, and the results."""
        if self.dir is None:
            return []
        rows = []
        with open(self.dir / "results.jsonl", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                if "sweep" in row:
                    continue  # of older programs: the first line, which says what the columns mean
                row["policy"] = self._people.get(row["policy"], row["policy"])
                rows.append({**row.pop("set"), **row})
        return rows

    def to_frame(self) -> "pandas.DataFrame":
        """A frame with a row for each point."""
        return _frame(self.rows)

    def report(self, out: Optional[Union[str, Path]] = None) -> Path:
        """Writes the page of curves and heat maps into the sweep's directory or to out."""
        from . import verbs

        if self.dir is None:
            raise TestbedError("this sweep has no directory, so there is no record for a report; load the sweep from its directory with testbed.load")
        return verbs.report(self.dir, out=out)

    def __repr__(self) -> str:
        return "<Sweep of %s: %s>" % (self.data["scenario"], _count(self.data["done"], "point"))

    def _repr_html_(self) -> str:
        names = [f["field"] for f in self.data.get("fields") or []]
        rows = []
        for c in self.data.get("cells") or []:
            s = c.get("speedup") or {}
            walls = [c["wall_clock_us"].get(p) for p in self.policies]
            rows.append([c["set"].get(n, "") for n in names] + ["%s µs" % format(round(w["median"]), ",") if w else "–" for w in walls] + ["%.2f×" % s["median"] if s.get("n") else ""])
        return _table(names + self.policies + ["speed-up"], rows)


class Tuning:
    """The best parameters that were found. data has the other results."""

    def __init__(self, data: Dict[str, Any]) -> None:
        self.data = data

    @property
    def dir(self) -> Optional[Path]:
        return Path(self.data["dir"]) if self.data.get("dir") else None

    @property
    def front(self) -> List[Dict[str, Any]]:
        """The points that no other point beats in wall-clock and work lost, the fastest first."""
        return list(self.data["front"])

    def to_frame(self) -> "pandas.DataFrame":
        """A frame with a row for each point of the front."""
        return _frame(self.front)

    def __repr__(self) -> str:
        return "<Tuning of %s: %d of %s on the front>" % (self.data["scenario"], len(self.front), _count(self.data["points"], "point"))

    def _repr_html_(self) -> str:
        rows = [[p["policy"], "%s µs" % format(round(p["wall_clock_us"]), ","), "%.1f %%" % (100 * p["lost"]) if "lost" in p else ""] for p in self.front]
        return _table(["policy", "wall-clock", "work lost"], rows)


class Document:
    """A result that has no class of its own. The output of --json is available as attributes, and
    as a dict in data."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["data"][name]
        except (KeyError, TypeError):
            raise AttributeError(name) from None

    def __repr__(self) -> str:
        return "<Document with %s>" % ", ".join(self.data) if isinstance(self.data, dict) else repr(self.data)


def _count(n: int, thing: str) -> str:
    return "%d %s%s" % (n, thing, "" if n == 1 else "s")


def _frame(rows: List[Dict[str, Any]], whole: Sequence[str] = ()) -> "pandas.DataFrame":
    """A frame. The columns in whole contain whole numbers or missing values."""
    try:
        import pandas
    except ImportError:
        raise ImportError("to_frame() needs pandas; run pip install pandas") from None
    frame: pandas.DataFrame = pandas.DataFrame(rows)
    for name in whole:
        if name in frame:
            frame[name] = frame[name].astype("Int64")
    return frame


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    def cells(tag: str, values: Sequence[Any]) -> str:
        whole = ("text-align:left;white-space:nowrap", "text-align:left")  # short ones are not broken
        texts = [str(v) for v in values]
        return "<tr>%s</tr>" % "".join("<%s style='%s'>%s</%s>" % (tag, whole[len(t) > 40], html.escape(t), tag) for t in texts)

    top = cells("th", head) if any(head) else ""
    return "<table>%s%s</table>" % (top, "".join(cells("td", r) for r in rows))


def result_of(text: bytes, make: Callable[[Any], Any]) -> Any:
    """The result in the output of a command, or None."""
    try:
        return make(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None


