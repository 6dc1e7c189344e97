"""Testbed: does a membership policy that wins in simulation win on a real network?

    import testbed as tb

    ab = tb.compare("persistent_straggler", ["baseline", "straggler"], world="sim")
    ab.speedup(), ab.to_frame(), ab.plot()

Programs that train inside of a run call testbed.join().
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._binary import Cancel, Progress, binary, version
from ._fields import (
    Access,
    AllReduce,
    Diurnal,
    Group,
    GroupPath,
    Inject,
    InnerOptimiser,
    LinkInject,
    Links,
    LossBurst,
    Model,
    Noise,
    OuterOptimiser,
    PairPath,
    Policies,
    Properties,
    Real,
    Regions,
    Steps,
    Thermal,
    Train,
    Upload,
    Work,
    WorkerClass,
    WorkerSpec,
)  # fmt: skip
from .errors import InvalidResult, TestbedError, Unsupported, UsageError
from .policy import Deadline, Member, Policy, Range, Round, share
from .results import Comparison, Decision, Document, Estimate, Event, Events, Fidelity, Result, Sweep, Tuning
from .scenario import (
    ClearPartition,
    CoordinatorCrash,
    Crash,
    Cut,
    Fail,
    FailReduce,
    Flap,
    Leave,
    LinkChange,
    LinkTrace,
    Partition,
    Pause,
    Preempt,
    Refuse,
    Restart,
    Restore,
    Resume,
    Scenario,
    Slow,
    library,
)  # fmt: skip
from .verbs import calibrate, compare, doctor, estimate, load, plan, replay, report, resume, run, simulate, sweep, tune, verify

if TYPE_CHECKING:
    from ._join import Run, flat, join, load_model, runs

__version__ = "0.3.0"

# What a trainer uses needs numpy, which all else does not.
_TRAINER = ("join", "runs", "flat", "load_model", "Run")


def __getattr__(name: str) -> Any:
    if name in _TRAINER:
        from . import _join

        return getattr(_join, name)
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


__all__ = [
    "Access", "AllReduce", "Cancel", "ClearPartition", "Comparison", "CoordinatorCrash", "Crash", "Cut", "Deadline", "Decision", "Diurnal", "Document",
    "Estimate", "Event", "Events", "Fail", "FailReduce", "Fidelity", "Flap", "Group", "GroupPath", "Inject", "InnerOptimiser", "InvalidResult", "Leave",
    "LinkChange", "LinkInject", "LinkTrace", "Links", "LossBurst", "Member", "Model", "Noise", "OuterOptimiser", "PairPath", "Partition", "Pause", "Policies",
    "Policy", "Preempt", "Progress", "Properties", "Range", "Real", "Refuse", "Regions", "Restart", "Restore", "Result", "Resume", "Round", "Run", "Scenario",
    "Slow", "Steps", "Sweep", "TestbedError", "Thermal", "Train", "Tuning", "Unsupported", "Upload", "UsageError", "Work", "WorkerClass", "WorkerSpec",
    "binary", "calibrate", "compare", "doctor", "estimate", "flat", "join", "library", "load", "load_model", "plan", "replay", "report", "resume", "run", "runs",
    "share", "simulate", "sweep", "tune", "verify", "version",
]  # fmt: skip
