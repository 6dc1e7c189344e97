"""Pictures of results, with matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .results import Comparison, Result


def _axes(ax: Optional["Axes"], size: Tuple[float, float] = (8, 4)) -> "Axes":
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError:
        raise ImportError("plot() needs matplotlib; run pip install matplotlib") from None
    return pyplot.subplots(figsize=size, constrained_layout=True)[1]


def _ms(us: float) -> float:
    return us / 1000


def timeline(result: "Result", ax: Optional["Axes"] = None) -> "Axes":
    """The activity of every worker over time: inner steps, all-reduces, and rounds that left the worker out."""
    workers = sorted({e.worker for e in result.events if e.worker is not None})
    ax = _axes(ax, (9, 1.2 + 0.4 * len(workers)))
    place = {w: i for i, w in enumerate(workers)}
    steps: Dict[int, List[Tuple[float, float]]] = {w: [] for w in workers}
    for e in result.events.of_type("step"):
        took = e.data.get("duration_us", 0)
        if e.worker is not None:
            steps[e.worker].append((_ms(e.t - took), _ms(took)))
    for w, bars in steps.items():
        ax.broken_barh(bars, (place[w] - 0.35, 0.7), facecolors="tab:blue", edgecolor="white", linewidth=0.3, label="inner steps" if w == workers[0] else None)
    first = True
    for r in result.rounds:
        for w in r.participants:
            if w in place and r.end > r.close:
                ax.broken_barh([(_ms(r.close), _ms(r.end - r.close))], (place[w] - 0.35, 0.7), facecolors="tab:orange", label="all-reduce" if first else None)
                first = False
        ax.axvline(_ms(r.end), color="0.7", linewidth=0.6, zorder=0)
    for decisions, marker, color, label in ((result.sidelined, "v", "tab:red", "sidelined"), (result.evicted, "x", "black", "evicted")):
        at = {r.number: r.close for r in result.rounds}
        points = [(_ms(at[d.round]), place[d.worker]) for d in decisions if d.round in at and d.worker in place]
        if points:
            ax.scatter([x for x, _ in points], [y for _, y in points], marker=marker, color=color, zorder=3, label=label)
    ax.set_yticks(range(len(workers)), ["w%d" % w for w in workers])
    ax.invert_yaxis()
    ax.set_xlabel("scenario time in ms")
    ax.set_title("%s under %s" % (result.scenario, result.policy))
    ax.legend(loc="upper left", bbox_to_anchor=(1, 1), fontsize="small")  # beside the picture: bars may be anywhere in it
    return ax


def losses(results: Sequence["Result"], ax: Optional["Axes"] = None) -> "Axes":
    """The validation loss by wall-clock, with a curve for each policy."""
    ax = _axes(ax)
    some = False
    colors: Dict[str, Any] = {}
    for r in results:
        points = r.losses
        if not points:
            continue
        some = True
        label = r.policy if r.policy not in colors else None
        (line,) = ax.plot([_ms(t) for t, _ in points], [loss for _, loss in points], label=label, color=colors.get(r.policy))
        colors[r.policy] = line.get_color()
    if not some:
        raise ValueError("no result has a validation loss; play a scenario whose section train trains a model, with train=True in simulations")
    ax.set_xlabel("scenario time in ms")
    ax.set_ylabel("validation loss")
    ax.legend()
    return ax


def _worlds(comparison: "Comparison") -> List[Tuple[str, str]]:
    titles = [("sim", "simulated"), ("sim_links", "on planned links"), ("real", "measured")]
    return [(w, title) for w, title in titles if getattr(comparison, w)]


def trade_off(comparison: "Comparison", ax: Optional["Axes"] = None) -> "Axes":
    """The wall-clock against the work lost, with a point for each run. The runs are those of the
    real network if it was played."""
    ax = _axes(ax, (6, 4))
    world, title = _worlds(comparison)[-1]
    for policy in comparison.policies:
        of = [r for w, r in comparison.results() if w == world and r.policy == policy and r.complete and r.work_lost is not None]
        ax.scatter([_ms(r.wall_clock_us) for r in of], [100 * (r.work_lost or 0) for r in of], label=policy)
    ax.set_xlabel("wall-clock in ms of scenario time, %s" % title)
    ax.set_ylabel("work lost in %")
    ax.set_title(comparison.scenario)
    ax.legend()
    return ax


def wall_clocks(comparison: "Comparison", ax: Optional["Axes"] = None) -> "Axes":
    """The wall-clock, with a bar for each policy and world."""
    ax = _axes(ax)
    worlds = _worlds(comparison)
    width = 0.8 / len(worlds)
    for i, (world, title) in enumerate(worlds):
        of = getattr(comparison, world)
        ax.bar([k + (i - (len(worlds) - 1) / 2) * width for k in range(len(comparison.policies))], [_ms(of[p].wall_clock_us) for p in comparison.policies], width, label=title)
    ax.set_xticks(range(len(comparison.policies)), comparison.policies)
    ax.set_ylabel("wall-clock in ms of scenario time")
    ax.set_title(comparison.scenario)
    ax.legend()
    return ax
