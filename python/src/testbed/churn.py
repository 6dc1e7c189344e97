"""churn's Python interface, as churn's README shows it: `import testbed.churn as churn`.

Wall-clocks equal churn's, to the microsecond, where churn has published them. Of other
values only the names are known: metrics.utilization() is a reconstruction that gives the
published values 0.62 and 0.89, and events have the names of this testbed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Optional, Union

from . import verbs
from ._fields import WorkerSpec
from .results import Event
from .results import Result as _Result
from .scenario import ClearPartition, Crash, Leave, Partition, Restore, Scenario, Slow

__all__ = [
    "Baseline", "BaselinePolicy", "ClearPartition", "Comparison", "Crash", "Event", "Leave", "Metrics", "Partition", "Restore", "RunResult", "Scenario",
    "Slow", "Straggler", "StragglerConfig", "StragglerPolicy", "WorkerSpec", "compare", "run",
]  # fmt: skip


@dataclass
class StragglerConfig:
    """The parameters of the straggler policy.

    quorum: the fraction of the members that must have arrived.
    k: the tolerance, in median absolute deviations.
    window: the number of past arrival offsets that count.
    min_history: the number of closed rounds before the first deadline.
    min_slack: the least time from the first arrival to the deadline (µs).
    sideline_limit: the number of consecutive rounds that a member may miss.
    """

    quorum: float = 0.75
    k: float = 3
    window: int = 32
    min_history: int = 1
    min_slack: int = 1
    sideline_limit: int = 2

    def _name(self) -> str:
        return "straggler" + "".join(":%s=%s" % (name, value) for name, value in vars(self).items())


class Baseline:
    """Waits for every member. Dead members are evicted by their missing heartbeats."""

    def _name(self) -> str:
        return "baseline"


class Straggler:
    """Closes a round at an adaptive deadline, with a quorum."""

    def __init__(self, config: Optional[StragglerConfig] = None) -> None:
        self.config = config if config is not None else StragglerConfig()

    def _name(self) -> str:
        return self.config._name()


BaselinePolicy, StragglerPolicy = Baseline, Straggler


class Metrics:
    """The times of a run, in microseconds."""

    def __init__(self, result: _Result) -> None:
        self._result = result

    @property
    def wall_clock(self) -> int:
        """The time of the last outer step."""
        return self._result.wall_clock_us

    @property
    def outer_steps(self) -> int:
        return self._result.outer_steps

    @property
    def joiner_stall_time(self) -> int:
        """The time that late joiners waited for the outer state."""
        return self._result.joiner_stall_us

    def utilization(self) -> float:
        """The busy time divided by the sum of the busy time and of the time in which rounds waited
        after their first arrival. This is a reconstruction: churn's definition is not known."""
        return float(self._result.data["churn_like_utilization"])

    def __repr__(self) -> str:
        return "Metrics(wall_clock=%d, outer_steps=%d, utilization()=%.4f)" % (self.wall_clock, self.outer_steps, self.utilization())


class RunResult:
    """The result of one simulation: metrics, and the trace as typed events."""

    def __init__(self, result: _Result) -> None:
        self.result = result
        self.metrics = Metrics(result)

    @property
    def trace(self) -> List[Event]:
        return list(self.result.events)


class Comparison:
    """The results of one scenario and seed under baseline and straggler."""

    def __init__(self, baseline: RunResult, straggler: RunResult) -> None:
        self.baseline, self.straggler = baseline, straggler

    @property
    def wall_clock_speedup(self) -> float:
        """The baseline's wall-clock divided by the straggler policy's wall-clock."""
        return self.baseline.metrics.wall_clock / self.straggler.metrics.wall_clock

    @property
    def utilization_gain(self) -> float:
        """The straggler policy's utilization minus the baseline's utilization."""
        return self.straggler.metrics.utilization() - self.baseline.metrics.utilization()


def run(scenario: Scenario, policy: Union[Baseline, Straggler, None] = None) -> RunResult:
    """Simulates a scenario under a policy, by default the baseline."""
    return RunResult(verbs.simulate(scenario, (policy if policy is not None else Baseline())._name()))


def compare(scenario: Scenario, config: Optional[StragglerConfig] = None) -> Comparison:
    """Simulates a scenario under the baseline and under the straggler policy."""
    return Comparison(run(scenario, Baseline()), run(scenario, Straggler(config)))
