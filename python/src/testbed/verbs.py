"""The verbs of the command line, as functions."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from ._binary import Cancel, ProgressOption, call
from .errors import InvalidResult, TestbedError, Unsupported, UsageError
from .policy import PolicyLike, _Served
from .results import Comparison, Document, Result, Sweep, Tuning, result_of
from .scenario import ScenarioLike, file_of

PathLike = Union[str, Path]
R = TypeVar("R")

#: The names that the record has for policies of this process, by what people call them.
Names = Dict[str, str]

#: Values for fields, by their paths in a scenario file: {"policy.straggler.k": 5}.
Set = Optional[Mapping[str, Any]]


def _flags(set: Set = None, **options: Any) -> List[str]:
    flags: List[str] = []
    for field, value in (set or {}).items():
        flags.append("--set=%s=%s" % (field, _value(value)))
    for name, value in options.items():
        if value is None or value is False:
            continue
        flag = "--" + name.rstrip("_").replace("_", "-")
        flags.append(flag if value is True else "%s=%s" % (flag, value))
    return flags


def _given(links: str) -> Optional[str]:
    """None if links is "auto", because some flags are for real runs only."""
    return None if links == "auto" else links


def _value(value: Any) -> str:
    """A value as in a file."""
    return value if isinstance(value, str) else json.dumps(value)


def _play(
    verb: str, scenario: Optional[ScenarioLike], policies: Sequence[PolicyLike], flags: List[str], make: Callable[[Any, Names], R], progress: ProgressOption,
    cancel: Optional[Cancel],
) -> R:  # fmt: skip
    with ExitStack() as stack:
        served = stack.enter_context(_Served(policies))
        args = [verb]
        if scenario is not None:
            args.append(stack.enter_context(file_of(scenario)))
        if policies:
            args.append("--policy=" + ",".join(served.names))
        try:
            out = call([*args, "--json", *flags], progress=progress, cancel=cancel, names=served.labels)
        except InvalidResult as err:
            printed = served.renamed(err.result or b"")
            raise InvalidResult(_plain(served, err), result_of(printed, lambda data: make(data, served.given()))) from None
        except TestbedError as err:
            if served.labels and err.args:
                err.args = (_plain(served, err), *err.args[1:])
            raise err from (served.failed[0] if served.failed else None)
        return make(json.loads(served.renamed(out)), served.given())


def _result(data: Any, _: Names) -> Result:
    return Result(data)


def _document(data: Any, _: Names) -> Document:
    return Document(data)


def _plain(served: _Served, err: BaseException) -> str:
    return served.renamed(str(err).encode()).decode()


def simulate(
    scenario: ScenarioLike, policy: PolicyLike, *, network: str = "churn", calibration: Optional[PathLike] = None, set: Set = None, train: bool = False,
    model: Optional[PathLike] = None, trace: bool = True, cancel: Optional[Cancel] = None,
) -> Result:  # fmt: skip
    """Plays a scenario in the deterministic simulator.

    network: "churn" (a message takes base_latency), or "links" (the planned links).
    calibration: the delays that this machine adds: a calibration.json of calibrate().
    set: new values for fields of the scenario.
    train: whether to train as the scenario's section train says.
    model: the file to which the trained model is written.
    trace: whether the result contains the events. Without the events, scenarios with a thousand
        workers are faster.
    """
    folder = tempfile.TemporaryDirectory(prefix="testbed-") if trace else None
    path = Path(folder.name) / "events.jsonl" if folder is not None else None
    flags = _flags(set, network=network, calibration=calibration, train=train, model=model, trace=path)
    return _play("simulate", scenario, [policy], flags, lambda data, _: Result(data, path, folder), False, cancel)


def replay(dir: PathLike, policy: PolicyLike, *, set: Set = None, cancel: Optional[Cancel] = None) -> Document:
    """Plays the record of a run again under a policy, to show what the policy would have decided.
    The result has recorded and replayed (summaries), same, and differences."""
    return _play("simulate", None, [policy], _flags(set, replay=dir), _document, False, cancel)


def run(
    scenario: ScenarioLike, policy: PolicyLike, *, links: str = "auto", time_scale: Optional[float] = None, dilation: Optional[float] = None,
    hosts: Optional[str] = None, place: Optional[str] = None, qlog: bool = False, out: Optional[PathLike] = None, progress: ProgressOption = False,
    cancel: Optional[Cancel] = None,
) -> Result:  # fmt: skip
    """Plays a scenario on a real network, with worker processes in network namespaces on shaped
    links. It needs Linux, and root or unprivileged user namespaces.

    links: the link backend: "netem", "user", "htb" or "auto".
    time_scale: real time divided by scenario time; None for the scenario's own value.
    dilation: the factor by which the whole emulation runs slower by the machine's clock.
    hosts, place: play on several hosts; see docs/hosts.md.
    out: the run directory; None for runs/SCENARIO-….

    Raises InvalidResult, with the result, if the run stayed incomplete, if workers ended with
    different bytes, or if the network did not match its plan.
    """
    flags = _flags(links=_given(links), time_scale=time_scale, dilation=dilation, hosts=hosts, place=place, qlog=qlog, out=out)
    return _play("run", scenario, [policy], flags, _result, progress, cancel)


def resume(dir: PathLike, *, progress: ProgressOption = False, cancel: Optional[Cancel] = None) -> Result:
    """Continues a run that was killed, in its directory."""
    return _play("run", None, [], _flags(resume=dir), _result, progress, cancel)


def compare(
    scenario: ScenarioLike, policies: Sequence[PolicyLike] = ("baseline", "straggler"), *, world: str = "both", repeat: int = 1, set: Set = None,
    train: bool = False, calibration: Optional[PathLike] = None, links: str = "auto", time_scale: Optional[float] = None, dilation: Optional[float] = None,
    hosts: Optional[str] = None, place: Optional[str] = None, qlog: bool = False, out: Optional[PathLike] = None, progress: ProgressOption = False,
    cancel: Optional[Cancel] = None, loss: Optional[float] = None,
) -> Comparison:  # fmt: skip
    """Plays a scenario under each policy, in the simulator and on a real network. The first policy
    is the reference for the other policies.

    world: "sim" (on any system), "real", or "both".
    repeat: the number of seeds with which each policy is played.
    loss: the validation loss up to which times are measured; None for the final loss of the
        first policy.
    The other arguments are those of run() and simulate().

    Raises InvalidResult, with the comparison, if a real run is not valid.
    """
    flags = _flags(
        set, world=world, repeat=repeat, train=train, calibration=calibration, links=_given(links), time_scale=time_scale, dilation=dilation, hosts=hosts, place=place,
        qlog=qlog, out=out, loss=loss,
    )  # fmt: skip
    return _play("compare", scenario, list(policies), flags, Comparison, progress, cancel)


def _axes(fields: Mapping[str, Sequence[Any]]) -> List[str]:
    flags = []
    for field, values in fields.items():
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise UsageError("%s must be varied over a list of values, not over %r" % (field, values))
        flags.append("--set=%s=%s" % (field, ",".join(_value(v) for v in values)))
    return flags


def sweep(
    scenario: ScenarioLike, fields: Mapping[str, Sequence[Any]], policies: Sequence[PolicyLike] = ("baseline", "straggler"), *,
    seeds: Optional[Tuple[int, int]] = None, network: str = "churn", train: bool = False, loss: Optional[float] = None, real: bool = False, repeat: int = 1,
    links: str = "auto", out: Optional[PathLike] = None, resume: bool = False, progress: ProgressOption = False, cancel: Optional[Cancel] = None,
) -> Sweep:  # fmt: skip
    """Plays a scenario with every combination of values, every seed and every policy.

    >>> tb.sweep("homogeneous", {"workers.count": [4, 16, 64]}, seeds=(1, 5))

    fields: lists of values, by the path of the field in a scenario file. workers.count is the
        number of workers.
    seeds: the first and the last seed; None for the scenario's own seed.
    real: whether to play on a real network, one point after the other, each repeat times.
    resume: whether to skip the points that the directory out already contains.
    """
    span = "%d..%d" % seeds if seeds is not None else None
    flags = _axes(fields) + _flags(
        seeds=span, network=network, train=train, loss=loss, real=real, repeat=repeat if real else None, links=_given(links) if real else None, out=out, resume=resume
    )
    return _play("sweep", scenario, list(policies), flags, Sweep, progress, cancel)


def tune(
    scenario: ScenarioLike, policies: Optional[Sequence[PolicyLike]] = None, *, world: str = "sim", points: Optional[int] = None, seeds: Optional[int] = None,
    held_out: Optional[int] = None, best: Optional[int] = None, repeat: Optional[int] = None, train: bool = False, calibration: Optional[PathLike] = None,
    links: str = "auto", out: Optional[PathLike] = None, progress: ProgressOption = False, cancel: Optional[Cancel] = None,
) -> Tuning:  # fmt: skip
    """Searches the parameters of policies in the simulator. The result keeps the points that no
    other point beats in wall-clock and work lost. With world="both", the best points are also
    played on a real network.

    points: the number of points to simulate, over all policies.
    seeds: the number of seeds of each point.
    held_out: the number of other seeds that judge the best points.
    best: the number of points to choose.
    """
    flags = _flags(
        world=world, points=points, seeds=seeds, held_out=held_out, best=best, repeat=repeat, train=train, calibration=calibration, links=_given(links), out=out
    )
    return _play("tune", scenario, list(policies or ()), flags, lambda data, _: Tuning(data), progress, cancel)


def plan(scenario: ScenarioLike, *, measure: bool = False) -> Document:
    """The network that a run would install: nodes, paths and ring. plan installs nothing.

    measure: whether to measure, for some seconds, how much traffic this machine can handle. The
        result then has the dilation that the scenario needs.
    """
    return _play("plan", scenario, [], _flags(measure=measure), _document, False, None)


def verify(scenario: ScenarioLike, *, links: str = "auto", hosts: Optional[str] = None, cancel: Optional[Cancel] = None) -> Document:
    """Builds the scenario's network, measures every path, and compares it with the plan. Raises
    InvalidResult, with the result, if a value is outside of its tolerance."""
    return _play("verify", scenario, [], _flags(links=_given(links), hosts=hosts), _document, False, cancel)


def calibrate(
    scenarios: Sequence[ScenarioLike] = (), *, policy: Optional[str] = None, only: Sequence[str] = (), refit: Sequence[PathLike] = (),
    repeat: Optional[int] = None, retries: Optional[int] = None, links: str = "auto", out: Optional[PathLike] = None, cancel: Optional[Cancel] = None,
) -> Document:  # fmt: skip
    """Measures the delays that this machine adds to the network, in about two minutes. The
    directory then contains calibration.json, for simulate() and compare().

    only: the experiments to run; None for all.
    refit: directories of runs to fit instead of new runs.
    """
    flags = _flags(policy=policy, repeat=repeat, retries=retries, out=out, links=None if refit else _given(links))
    flags += ["--only=" + name for name in only] + ["--refit=%s" % dir for dir in refit]
    with ExitStack() as stack:
        names = [stack.enter_context(file_of(s)) for s in scenarios]
        return Document(json.loads(call(["calibrate", *names, "--json", *flags], cancel=cancel)))


def estimate(file: Optional[PathLike] = None, *, preset: Optional[str] = None, variant: str = "page", calibration: Optional[PathLike] = None, **inputs: Any) -> Document:
    """The number of days that a training run takes, from formulas. docs/estimate.md explains them.

    >>> tb.estimate(numNodes=32, bandwidthMbps=500).data

    file: a file with inputs.
    preset: the published run from which the inputs start.
    inputs: further inputs, by name.
    """
    args = ["estimate"] + ([str(file)] if file is not None else [])
    return Document(json.loads(call([*args, "--json", *_flags(inputs, preset=preset, variant=variant, calibration=calibration)])))


def report(dir: Union[PathLike, Sequence[PathLike]], *, out: Optional[PathLike] = None, trace: Optional[PathLike] = None, picture: Optional[PathLike] = None) -> Path:
    """Writes the report of runs, of a comparison or of a sweep: one HTML file that needs no network.

    trace: a file for ui.perfetto.dev, of a single run.
    picture: an SVG file, or PDF if something was trained.
    """
    dirs = [dir] if isinstance(dir, (str, Path)) else list(dir)
    call(["report", *map(str, dirs), *_flags(out=out, trace=trace, picture=picture)])
    return Path(out) if out is not None else Path(dirs[0]) / "report.html"


def doctor() -> Document:
    """What this machine can do, and what is missing. data has a list of checks. Each check has
    name, ok, needed (whether a real network needs it), detail and, if there is a fix, mend.
    Raises Unsupported if this system is not Linux."""
    try:
        out = call(["doctor", "--json"])
    except Unsupported as err:
        if not err._printed:
            raise
        out = err._printed
    return Document(json.loads(out))


def load(dir: PathLike) -> Union[Result, Comparison, Sweep, Tuning]:
    """The result in the directory of a run, a comparison, a sweep or a search."""
    folder = Path(dir)
    for name, make in _FILES.items():
        path = folder / name
        if not path.exists():
            continue
        data: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if name == "summary.json":
            make = Sweep if "points" in data else Result
        data["dir"] = str(folder)
        loaded: Union[Result, Comparison, Sweep, Tuning] = make(data)
        return loaded
    raise UsageError("%s contains no result of a run, a comparison, a sweep or a search; name a directory that testbed wrote" % folder)


_FILES: Dict[str, Callable[[Any], Any]] = {"comparison.json": Comparison, "tuning.json": Tuning, "summary.json": Result}
