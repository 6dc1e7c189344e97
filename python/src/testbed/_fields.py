"""The fields of a scenario, as its file has them. Made by tools/fields.py.

A field that is None is not given: it has its default, or no effect. Times are
whole microseconds, or text with a unit such as "30ms". Rates, sizes and durations
of the real network are always text with a unit, such as "100mbit", "256kb" and
"25ms".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Dict, List, Optional, Union


class _Fields:
    def __repr__(self) -> str:
        given = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % (name, value) for name, value in given if value is not None))


@dataclass(repr=False)
class WorkerSpec(_Fields):
    """Worker is one training process.

    id: the worker's number. Worker 3 is node w3. Give `id` or `ids`.
    join_at: the time at which the worker joins. Workers with the earliest time start the run
        with its initial state. Others fetch the state when they join (µs, default 0)
    inner_step_mean: the mean duration of an inner step (µs)
    inner_step_jitter: an inner step takes `inner_step_mean` ± this time, uniformly distributed,
        unless `work` sets another distribution. It is at most the mean (µs, default 0)
    initial_step: under torchft only: the number of outer steps that the worker claims to have
        taken, below `target_outer_steps`. Whenever it joins, the worker has the initial state
        (default 0)
    lighthouse: under torchft only: the number of the lighthouse that the worker asks. Two
        lighthouses can split a run (default 0)
    """

    id: int
    inner_step_mean: Union[int, str]
    join_at: Optional[Union[int, str]] = None
    inner_step_jitter: Optional[Union[int, str]] = None
    initial_step: Optional[int] = None
    lighthouse: Optional[int] = None


@dataclass(repr=False)
class Inject(_Fields):
    """Inject is a fault or change that happens to workers at a given time.

    op: the kind of inject (Crash | Leave | Slow | Restore | Pause | Resume | Partition |
        ClearPartition | CoordinatorCrash | Restart | Fail | Preempt | FailReduce)
    at: the time of the inject, at most `horizon` (µs)
    id: the worker concerned. All injects except `Partition`, `ClearPartition` and
        `CoordinatorCrash` need it.
    ids: the workers that `Partition` cuts off, or that `ClearPartition` reconnects. Without
        `ids`, `ClearPartition` reconnects all workers (such as "0-999")
    factor: with `Slow`, which needs it: inner steps take this many times as long.
    down: with `CoordinatorCrash`: the time until another coordinator starts (µs, default 0)
    heartbeats: with `Pause`: the worker still sends heartbeats, like a hung trainer with a live
        manager (default false)
    forgets: with `CoordinatorCrash`, under torchft only: the lighthouse loses its memory
        (default false)
    after: with `Restart`: the time until the new process begins (µs, default 0)
    lighthouse: with `Restart`, under torchft only: the number of the lighthouse that the new
        process asks. The default is the former process's lighthouse.
    notice: with `Preempt`: the time from the warning to the worker's death (µs, default 0)
    alone: with `FailReduce`, under torchft: the reduction fails only for this worker, after it
        has done its part. The others finish (default false)
    """

    op: str
    at: Union[int, str]
    id: Optional[int] = None
    ids: Optional[List[int]] = None
    factor: Optional[float] = None
    down: Optional[Union[int, str]] = None
    heartbeats: Optional[bool] = None
    forgets: Optional[bool] = None
    after: Optional[Union[int, str]] = None
    lighthouse: Optional[int] = None
    notice: Optional[Union[int, str]] = None
    alone: Optional[bool] = None


@dataclass(repr=False)
class Policies(_Fields):
    """Policies are the parameters of the policies, and the settings that hold under any policy.

    baseline: the parameters of the policy baseline
    adaptive: the parameters of the policy adaptive
    backup: the parameters of the policy backup
    deadline: the parameters of the policy deadline
    quorum: the parameters of the policy quorum
    sample: the parameters of the policy sample
    straggler: the parameters of the policy straggler
    torchft: the parameters of the policy torchft
    join: when a late joiner begins to contribute. `running`: it begins the running round at
        once. `next`: it begins with the next round. `zeros`: it contributes zeros to the
        running round if it has the state in time. `blocking`: as `zeros`, and the others wait
        while it fetches the state (running | next | zeros | blocking, default "running")
    rejoin: whether workers evicted alive or for slowness may come back (never | after_rounds,
        default "never")
    rejoin_rounds: with `rejoin: after_rounds`: outer steps from a worker's eviction to its
        return. 0 counts as 1 (default 0)
    program: parameters of policy programs, by name. They apply to every program that is named
        without them.
    staleness_weight: the weight, in a worker's next contribution, of a pseudo-gradient that
        missed its round. 0 discards the late pseudo-gradient. No decision depends on the weight
        (default 0)
    """

    baseline: Optional[BaselineParameters] = None
    adaptive: Optional[AdaptiveParameters] = None
    backup: Optional[BackupParameters] = None
    deadline: Optional[DeadlineParameters] = None
    quorum: Optional[QuorumParameters] = None
    sample: Optional[SampleParameters] = None
    straggler: Optional[StragglerParameters] = None
    torchft: Optional[TorchftParameters] = None
    join: Optional[str] = None
    rejoin: Optional[str] = None
    rejoin_rounds: Optional[int] = None
    program: Optional[Dict[str, str]] = None
    staleness_weight: Optional[float] = None


@dataclass(repr=False)
class Real(_Fields):
    """Real says how the scenario is played on a real network.

    time_scale: real time divided by scenario time (default 100)
    dilation: the factor by which a real run is slower by the machine's clock, to carry the load
        of a faster machine. Links, heartbeats, deadlines and inner steps all slow down, so
        results stay those of an undilated run (default 1)
    compute: with `planned`, inner steps take as long as the scenario says. With `measured`,
        they take their computing time × the worker's planned duration ÷ the median worker's
        `inner_step_mean`. Both include `work` and `Slow`. The default is `measured` for the
        task `program`, otherwise `planned` (planned | measured)
    parameters: the length of the model's float32 vector, over all ranks of a replica group. The
        state is twice as long, because of momentum. If absent and `train` has a model, it is
        the model's. Real runs take at most 2³⁰ (default 1000000)
    min_slack: the least real time from a round's first arrival to a deadline that follows from
        arrivals. Arrivals closer together say more about the shared machine than about a
        worker. The default is 50ms plus 10ms per worker (such as "25ms")
    stall_timeout: the real time after which a reduction in which no worker receives anything
        counts as stalled. The default is the largest of `heartbeat_period` ×
        `heartbeat_miss_threshold`, 2s and, for any two nodes, 8 round trips plus 4 times the
        full queues on the way (such as "25ms")
    heed_unreachable: the coordinator pings silent members and acts on ICMP errors, so that a
        crash is noticed in about one heartbeat period. Without it, crashes are silent (default
        false)
    checkpoint_every: the number of outer steps between checkpoints. 0 means no checkpoints
        (default 5)
    upload: outer states sent to a store on the network.
    tcp: the kernel's name for the congestion control of TCP connections in the nodes. It
        affects users' programs, stacks and rivals of the ring, but not workers, which use QUIC.
        The default applies if the kernel allows nodes to choose (default "reno")
    links: the properties of the network's links.
    all_reduce: how workers average their pseudo-gradients.
    injects: faults and changes of links. The simulator's default network, which has no links,
        ignores them.
    """

    time_scale: Optional[float] = None
    dilation: Optional[float] = None
    compute: Optional[str] = None
    parameters: Optional[int] = None
    min_slack: Optional[str] = None
    stall_timeout: Optional[str] = None
    heed_unreachable: Optional[bool] = None
    checkpoint_every: Optional[int] = None
    upload: Optional[Upload] = None
    tcp: Optional[str] = None
    links: Links = field(default_factory=lambda: Links())
    all_reduce: AllReduce = field(default_factory=lambda: AllReduce())
    injects: Optional[List[LinkInject]] = None


@dataclass(repr=False)
class Upload(_Fields):
    """UploadSpec is the section real.upload of a scenario.

    every: the number of outer steps between uploads. 0 means no uploads (default 0)
    yields: uploads pause while their worker reduces. Otherwise uploads and reductions share the
        worker's link (default false)
    """

    every: Optional[int] = None
    yields: Optional[bool] = None


@dataclass(repr=False)
class Links(_Fields):
    """Spec is the `real.links` section of a scenario. The most specific level sets a property: a
    node or pair, otherwise a group, otherwise default. Within a level, explicit values
    override a preset.

    default: the properties of all nodes and pairs, unless another section gives them.
    groups: sets of nodes, by name. A group's properties apply to the separate access link of
        each of its nodes. A node is in one group at most.
    paths: paths between all nodes of two groups, or within one.
    nodes: the access links of single nodes, by node name.
    pairs: paths of single ordered pairs of nodes.
    """

    default: Properties = field(default_factory=lambda: Properties())
    groups: Optional[Dict[str, Group]] = None
    paths: Optional[List[GroupPath]] = None
    nodes: Optional[Dict[str, Access]] = None
    pairs: Optional[List[PairPath]] = None


@dataclass(repr=False)
class Properties(_Fields):
    """Properties are an access link and a path together.

    access_preset: A published profile. It gives both rates and the delay, unless these are
        given explicitly (cable | dsl | fibre | lte | starlink)
    rate_up: the node's sending rate (such as "100mbit", default "unlimited")
    rate_down: the node's receiving rate (such as "100mbit", default "unlimited")
    queue: the limit of each rate's queue, per peer. Packets beyond it are dropped. A time means
        rate × time, and at least one batch of a sender (such as "20ms", default "20ms")
    access_one_way_delay: the time that a packet spends on this link. It is added to the one-way
        delay of every path from and to the node (such as "25ms", default "0s")
    path_preset: A published path. It gives the one-way delay, unless this is given explicitly
        (such as "dallas-tokyo")
    one_way_delay: the time from the sender's access link to the receiver's. If absent
        everywhere, it is the scenario's `base_latency` × `time_scale` (such as "25ms")
    rate: the rate of the path itself. It applies after the delay, with a queue of the size of
        the sender's `queue` (such as "100mbit", default "unlimited")
    jitter: the variation of the one-way delay. Packets keep their order, and none may arrive
        before it was sent (such as "25ms", default "0s")
    jitter_distribution: `uniform`: within ± `jitter`. `normal`: with the deviation `jitter`,
        cut at ± 3.67 `jitter`. `pareto`: as netem's, from −2/3 to +4 times `jitter`, with mean
        0 and deviation 0.82 `jitter` (uniform | normal | pareto, default "uniform")
    loss: the share of packets lost, each independently. It replaces a `loss_burst` of a less
        specific level, and vice versa (such as "0.1%", default "0%")
    loss_burst: loss in bursts, in place of `loss`.
    duplicate: the share of packets that arrive twice. Loss and corruption apply to each copy
        independently (such as "0.1%", default "0%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%", default "0%")
    corrupt: the share of packets with one bit flipped. Receivers drop them by the checksum
        (such as "0.1%", default "0%")
    """

    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None
    path_preset: Optional[str] = None
    one_way_delay: Optional[str] = None
    rate: Optional[str] = None
    jitter: Optional[str] = None
    jitter_distribution: Optional[str] = None
    loss: Optional[Union[float, str]] = None
    loss_burst: Optional[LossBurst] = None
    duplicate: Optional[Union[float, str]] = None
    reorder: Optional[Union[float, str]] = None
    corrupt: Optional[Union[float, str]] = None


@dataclass(repr=False)
class LossBurst(_Fields):
    """LossBurst is loss in bursts: the Gilbert-Elliott model (E. N. Gilbert, "Capacity of a
    burst-noise channel", 1960; E. O. Elliott, "Estimates of error rates for codes on burst-
    noise channels", 1963) with the parameters of netem(8). The path is inside or outside a
    burst. This state first determines the loss of each packet. Then the packet may change the
    state. The zero value is no loss at all.

    enter: the probability, per packet, that a burst begins (netem's p) (such as "0.1%")
    leave: the probability, per packet, that a burst ends (r). Bursts are 1/`leave` packets long
        on average (such as "0.1%")
    loss_inside: the share of packets lost inside a burst (1-h) (such as "0.1%")
    loss_outside: the share of packets lost outside of bursts (1-k) (such as "0.1%", default
        "0%")
    """

    enter: Union[float, str]
    leave: Union[float, str]
    loss_inside: Union[float, str]
    loss_outside: Optional[Union[float, str]] = None


@dataclass(repr=False)
class Group(_Fields):
    """Group is a set of nodes.

    nodes: names (coordinator), ranges (w0-w20, of which both ends must exist) and patterns
        (w*).
    access_preset: A published profile. It gives both rates and the delay, unless these are
        given explicitly (cable | dsl | fibre | lte | starlink)
    rate_up: the node's sending rate (such as "100mbit")
    rate_down: the node's receiving rate (such as "100mbit")
    queue: the limit of each rate's queue, per peer. Packets beyond it are dropped. A time means
        rate × time, and at least one batch of a sender (such as "20ms")
    access_one_way_delay: the time that a packet spends on this link. It is added to the one-way
        delay of every path from and to the node (such as "25ms")
    """

    nodes: List[str]
    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None


@dataclass(repr=False)
class GroupPath(_Fields):
    """GroupPath is the path between the nodes of two groups: between in both directions, or from
    one to the other. A group's path to itself connects its own nodes.

    between: two groups, for paths in both directions. The same group twice means the paths
        within it.
    from: the group at which the paths begin. `from` and `to` mean one direction only.
    to: the group at which the paths end.
    path_preset: A published path. It gives the one-way delay, unless this is given explicitly
        (such as "dallas-tokyo")
    one_way_delay: the time from the sender's access link to the receiver's. If absent
        everywhere, it is the scenario's `base_latency` × `time_scale` (such as "25ms")
    rate: the rate of the path itself. It applies after the delay, with a queue of the size of
        the sender's `queue` (such as "100mbit")
    jitter: the variation of the one-way delay. Packets keep their order, and none may arrive
        before it was sent (such as "25ms")
    jitter_distribution: `uniform`: within ± `jitter`. `normal`: with the deviation `jitter`,
        cut at ± 3.67 `jitter`. `pareto`: as netem's, from −2/3 to +4 times `jitter`, with mean
        0 and deviation 0.82 `jitter` (uniform | normal | pareto)
    loss: the share of packets lost, each independently. It replaces a `loss_burst` of a less
        specific level, and vice versa (such as "0.1%")
    loss_burst: loss in bursts, in place of `loss`.
    duplicate: the share of packets that arrive twice. Loss and corruption apply to each copy
        independently (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets with one bit flipped. Receivers drop them by the checksum
        (such as "0.1%")
    """

    between: Optional[List[str]] = None
    from_: Optional[str] = None
    to: Optional[str] = None
    path_preset: Optional[str] = None
    one_way_delay: Optional[str] = None
    rate: Optional[str] = None
    jitter: Optional[str] = None
    jitter_distribution: Optional[str] = None
    loss: Optional[Union[float, str]] = None
    loss_burst: Optional[LossBurst] = None
    duplicate: Optional[Union[float, str]] = None
    reorder: Optional[Union[float, str]] = None
    corrupt: Optional[Union[float, str]] = None


@dataclass(repr=False)
class Access(_Fields):
    """Access is a node's own link to the network.

    access_preset: A published profile. It gives both rates and the delay, unless these are
        given explicitly (cable | dsl | fibre | lte | starlink)
    rate_up: the node's sending rate (such as "100mbit")
    rate_down: the node's receiving rate (such as "100mbit")
    queue: the limit of each rate's queue, per peer. Packets beyond it are dropped. A time means
        rate × time, and at least one batch of a sender (such as "20ms")
    access_one_way_delay: the time that a packet spends on this link. It is added to the one-way
        delay of every path from and to the node (such as "25ms")
    """

    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None


@dataclass(repr=False)
class PairPath(_Fields):
    """Pair is the path from one node to another. The way back is a separate pair.

    from: the node at which the path begins.
    to: the node at which the path ends.
    path_preset: A published path. It gives the one-way delay, unless this is given explicitly
        (such as "dallas-tokyo")
    one_way_delay: the time from the sender's access link to the receiver's. If absent
        everywhere, it is the scenario's `base_latency` × `time_scale` (such as "25ms")
    rate: the rate of the path itself. It applies after the delay, with a queue of the size of
        the sender's `queue` (such as "100mbit")
    jitter: the variation of the one-way delay. Packets keep their order, and none may arrive
        before it was sent (such as "25ms")
    jitter_distribution: `uniform`: within ± `jitter`. `normal`: with the deviation `jitter`,
        cut at ± 3.67 `jitter`. `pareto`: as netem's, from −2/3 to +4 times `jitter`, with mean
        0 and deviation 0.82 `jitter` (uniform | normal | pareto)
    loss: the share of packets lost, each independently. It replaces a `loss_burst` of a less
        specific level, and vice versa (such as "0.1%")
    loss_burst: loss in bursts, in place of `loss`.
    duplicate: the share of packets that arrive twice. Loss and corruption apply to each copy
        independently (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets with one bit flipped. Receivers drop them by the checksum
        (such as "0.1%")
    """

    from_: Optional[str] = None
    to: Optional[str] = None
    path_preset: Optional[str] = None
    one_way_delay: Optional[str] = None
    rate: Optional[str] = None
    jitter: Optional[str] = None
    jitter_distribution: Optional[str] = None
    loss: Optional[Union[float, str]] = None
    loss_burst: Optional[LossBurst] = None
    duplicate: Optional[Union[float, str]] = None
    reorder: Optional[Union[float, str]] = None
    corrupt: Optional[Union[float, str]] = None


@dataclass(repr=False)
class AllReduce(_Fields):
    """Spec is the section real.all_reduce of a scenario. It is for the real network and the
    simulator's planned links. Churn's network, where an all-reduce has a fixed duration, does
    not use it.

    algorithm: the algorithm of the all-reduce: `ring`, `direct` (two hops, for long delays or
        many workers) or `hierarchical` (`direct` inside the groups of `links.groups`, then
        between them). `hierarchical` needs every worker in a group (ring | direct |
        hierarchical, default "ring")
    order: the ring's order: by worker id (`naive`), or with the smallest sum of one-way delays
        (`planned`) or round trips (`measured`). `planned_rates`, `measured_rates` and
        `given_rates` make the slowest hop as fast as possible (naive | planned | measured |
        planned_rates | measured_rates | given_rates, default "naive")
    rates: with `order: given_rates`: for each worker, in order, a list of its rates to all
        workers. The rate to itself is ignored.
    connections: QUIC connections to each peer. 0 chooses by the path's losses and jitter
        (default 0)
    bits: bits of a value on the wire: a code with a scale for each block (8, 4), bfloat16 (16)
        or float32 (32). 4 bits have 18 times the error of 8 (8 | 4 | 16 | 32, default 8)
    block: the number of values that share a scale of 4 bytes. Smaller blocks are more exact.
        Pieces are whole blocks, even without scales (default 1024)
    entropy: when codes are shortened by entropy coding: `auto` (while that is faster), `on` or
        `off`. It changes no result. `on` is refused with 16 and 32 bits (auto | on | off,
        default "auto")
    error_feedback: each worker adds the last quantisation error to its pseudo-gradient. It has
        no effect with 32 bits (default false)
    """

    algorithm: Optional[str] = None
    order: Optional[str] = None
    rates: Optional[List[List[str]]] = None
    connections: Optional[int] = None
    bits: Optional[int] = None
    block: Optional[int] = None
    entropy: Optional[str] = None
    error_feedback: Optional[bool] = None


@dataclass(repr=False)
class LinkInject(_Fields):
    """LinkInject is a fault or change of a link.

    op: the kind of inject (Link | LinkTrace | Cut | Refuse | Flap)
    at: the time at which it begins, at most `horizon` (µs)
    until: the time at which it ends. If absent, it does not end (µs)
    id: the worker whose access link changes. `Refuse` and `Flap` separate the worker from all
        other nodes.
    from: the node at which the path begins. `from` and `to` mean one direction only.
    to: the node at which the path ends.
    between: two nodes, for both directions between them.
    period: with `Flap`, which needs it: the time from one cut to the next. The times up and
        down are each at least 20 ms of real time (µs)
    down: with `Flap`, which needs it: the time down at the beginning of each period, less than
        the period (µs)
    direction: with `LinkTrace`, which needs it: `up` for what the worker sends, `down` for what
        it receives (up | down)
    file: with `LinkTrace`, which needs it: the trace's file, in the scenario's folder or below.
    access_preset: A published profile. It gives both rates and the delay, unless these are
        given explicitly (cable | dsl | fibre | lte | starlink)
    rate_up: the node's sending rate (such as "100mbit")
    rate_down: the node's receiving rate (such as "100mbit")
    queue: the limit of each rate's queue, per peer. Packets beyond it are dropped. A time means
        rate × time, and at least one batch of a sender (such as "20ms")
    access_one_way_delay: the time that a packet spends on this link. It is added to the one-way
        delay of every path from and to the node (such as "25ms")
    path_preset: A published path. It gives the one-way delay, unless this is given explicitly
        (such as "dallas-tokyo")
    one_way_delay: the time from the sender's access link to the receiver's. If absent
        everywhere, it is the scenario's `base_latency` × `time_scale` (such as "25ms")
    rate: the rate of the path itself. It applies after the delay, with a queue of the size of
        the sender's `queue` (such as "100mbit")
    jitter: the variation of the one-way delay. Packets keep their order, and none may arrive
        before it was sent (such as "25ms")
    jitter_distribution: `uniform`: within ± `jitter`. `normal`: with the deviation `jitter`,
        cut at ± 3.67 `jitter`. `pareto`: as netem's, from −2/3 to +4 times `jitter`, with mean
        0 and deviation 0.82 `jitter` (uniform | normal | pareto)
    loss: the share of packets lost, each independently. It replaces a `loss_burst` of a less
        specific level, and vice versa (such as "0.1%")
    loss_burst: loss in bursts, in place of `loss`.
    duplicate: the share of packets that arrive twice. Loss and corruption apply to each copy
        independently (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets with one bit flipped. Receivers drop them by the checksum
        (such as "0.1%")
    """

    op: str
    at: Union[int, str]
    until: Optional[Union[int, str]] = None
    id: Optional[int] = None
    from_: Optional[str] = None
    to: Optional[str] = None
    between: Optional[List[str]] = None
    period: Optional[Union[int, str]] = None
    down: Optional[Union[int, str]] = None
    direction: Optional[str] = None
    file: Optional[str] = None
    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None
    path_preset: Optional[str] = None
    one_way_delay: Optional[str] = None
    rate: Optional[str] = None
    jitter: Optional[str] = None
    jitter_distribution: Optional[str] = None
    loss: Optional[Union[float, str]] = None
    loss_burst: Optional[LossBurst] = None
    duplicate: Optional[Union[float, str]] = None
    reorder: Optional[Union[float, str]] = None
    corrupt: Optional[Union[float, str]] = None


@dataclass(repr=False)
class Work(_Fields):
    """Spec is the section `work` of a scenario. Times are scenario time in microseconds.

    steps: how the durations of inner steps vary around the worker's `inner_step_mean`.
    classes: kinds of workers. A worker is in one class at most. Without a class, its factor is
        1.
    noise: slowness that comes and goes, as from neighbours on the same machine.
    thermal: throttling after a time of work.
    diurnal: load that follows the time of day.
    """

    steps: Optional[Steps] = None
    classes: Optional[List[WorkerClass]] = None
    noise: Optional[Noise] = None
    thermal: Optional[Thermal] = None
    diurnal: Optional[Diurnal] = None


@dataclass(repr=False)
class Steps(_Fields):
    """Steps is the distribution of inner steps' durations. The mean is the worker's
    inner_step_mean.

    distribution: the distribution of a step's duration. All have the same mean (uniform |
        normal | lognormal | pareto | trace, default "uniform")
    sigma: the standard deviation divided by the mean or, for `lognormal`, that of the
        logarithm. `normal`, `lognormal` and `pareto` (or `shape`) need it. Most distributions
        have a lower maximum than this range.
    shape: for `pareto`, in place of `sigma`: the exponent.
    file: for `trace`, which needs it: a file in the scenario's folder or below. It contains
        durations in any unit, one a line (in CSV, the last column). A header and lines with #
        are skipped.
    """

    distribution: Optional[str] = None
    sigma: Optional[float] = None
    shape: Optional[float] = None
    file: Optional[str] = None


@dataclass(repr=False)
class WorkerClass(_Fields):
    """Class is a kind of workers.

    name: the name of the class, such as a100. Names are unique.
    ids: the workers of the class (such as "0-999")
    factor: inner steps take this many times as long.
    phase: A fraction of a day that is added to the phase of `diurnal`, so that a class can be a
        region (default 0)
    """

    name: str
    ids: List[int]
    factor: float
    phase: Optional[float] = None


@dataclass(repr=False)
class Noise(_Fields):
    """Noise is slowness that comes and goes, as neighbours on the same machine do: a Markov
    chain of two states with exponential times in each, separately for each worker.

    slow_factor: while slow, inner steps take this many times as long.
    mean_ok: the mean of the exponential time for which a worker has its normal speed (µs)
    mean_slow: the mean of the exponential time for which a worker is slow (µs)
    """

    slow_factor: float
    mean_ok: Union[int, str]
    mean_slow: Union[int, str]


@dataclass(repr=False)
class Thermal(_Fields):
    """Thermal is throttling: a worker's temperature rises for the time heat, then its steps take
    slow_factor times as long for the time cool. The lumped thermal resistance and capacitance
    of Skadron et al., "Temperature-aware microarchitecture" (ISCA 2003), behaves in this way
    under constant load between two thresholds. Time at a barrier counts as load. Workers
    begin anywhere in the cycle.

    slow_factor: while throttled, inner steps take this many times as long.
    heat: the time for which a worker has its normal speed, even while it waits (µs)
    cool: the time for which the worker is then throttled (µs)
    """

    slow_factor: float
    heat: Union[int, str]
    cool: Union[int, str]


@dataclass(repr=False)
class Diurnal(_Fields):
    """Diurnal is load that follows the time of day: steps take 1 + amplitude·sin(2π(t/period +
    phase)) times as long.

    amplitude: inner steps take 1 + `amplitude` · sin 2π(t ÷ `period` + `phase`) times as long,
        updated a thousand times a day.
    period: the length of a day (µs)
    phase: the time of day at which the run begins, as a fraction of a day. The class's phase is
        added (default 0)
    """

    amplitude: float
    period: Union[int, str]
    phase: Optional[float] = None


@dataclass(repr=False)
class Train(_Fields):
    """Spec is the section `train`.

    task: what is trained: `quadratic`, a stand-in that costs next to nothing; `charlm`, a
        language model on the bytes of a text; or `program`, your own trainer (quadratic |
        charlm | program, default "quadratic")
    text: for `charlm`: the text, a file in the scenario's folder or below. The default is
        Persuasion by Jane Austen, 466,854 bytes. The last tenth is for validation, and no
        worker trains on it.
    split: for `charlm`: how workers share the text. `iid`: every worker draws from the whole
        text. `contiguous`: each has a part of its own, so their data differ (iid | contiguous,
        default "iid")
    model: for `charlm`: the transformer's shape, which sets the number of parameters.
    inner: for `charlm`: the inner optimiser, AdamW.
    outer: the outer optimiser, Nesterov momentum, and what a round exchanges.
    regions: hierarchical outer steps: most rounds average within a region only.
    group_world_size: the number of workers in a replica group of torchft, taken in the order of
        their ids. They are the group's ranks, each with a part of the stand-in's parameters
        (default 1)
    program: for `program`, which needs it: the program and its arguments, without a shell. A
        name with a slash is relative to the scenario's folder. Others are found as by a shell.
        The program runs in the scenario's folder.
    time_limit: for `program`: the real time that the program may take to join, to do an inner
        step, or to hand over its parameters (such as "25ms", default "1m0s")
    tokens_per_step: for `program`: the number of tokens that an inner step trains on. Results
        contain `tokens_seen` and `time_to_loss` unless it is 0 (default 0)
    """

    task: Optional[str] = None
    text: Optional[str] = None
    split: Optional[str] = None
    model: Optional[Model] = None
    inner: Optional[InnerOptimiser] = None
    outer: Optional[OuterOptimiser] = None
    regions: Optional[Regions] = None
    group_world_size: Optional[int] = None
    program: Optional[List[str]] = None
    time_limit: Optional[str] = None
    tokens_per_step: Optional[int] = None


@dataclass(repr=False)
class Model(_Fields):
    """Model is the shape of CharLM's transformer, and what a step trains on. Fields that are 0
    have their default values.

    layers: the number of transformer blocks (default 2)
    width: the number of values per position (default 64)
    heads: the number of attention heads, which divides `width` (default 4)
    context: the number of bytes that a prediction sees at most (default 64)
    batch: the number of windows of `context` bytes in an inner step (default 8)
    """

    layers: Optional[int] = None
    width: Optional[int] = None
    heads: Optional[int] = None
    context: Optional[int] = None
    batch: Optional[int] = None


@dataclass(repr=False)
class InnerOptimiser(_Fields):
    """Inner is CharLM's inner optimiser, AdamW. Missing fields have their default values.

    rate: the learning rate (default 0.003)
    decay: the weight decay, of matrices only (default 0.1)
    warmup: the number of inner steps over which the rate rises from 0 (default 40)
    """

    rate: Optional[float] = None
    decay: Optional[float] = None
    warmup: Optional[int] = None


@dataclass(repr=False)
class OuterOptimiser(_Fields):
    """Outer is the outer optimiser, and the part of the parameters that a round exchanges.

    rate: the learning rate of outer steps (default 0.7)
    momentum: the Nesterov momentum of outer steps, below 1. DiLoCo's rate 0.7 and momentum 0.9
        pay only after a hundred rounds. For short runs, use 0.7 and 0.5 (default 0.9)
    fragments: the number of parts into which the blocks of layers are dealt. Each round
        exchanges one part, in turn (default 1)
    mix: when a fragment's outer step arrives, a worker keeps this share of the fragment's local
        parameters (default 0)
    overlap: the number of inner steps of the next round that workers take during a reduction,
        at most `inner_steps` (default 0)
    correction: with `eager`, a worker that receives an outer step a round late also adds the
        expected effect of its own next contribution (eager)
    """

    rate: Optional[float] = None
    momentum: Optional[float] = None
    fragments: Optional[int] = None
    mix: Optional[float] = None
    overlap: Optional[int] = None
    correction: Optional[str] = None


@dataclass(repr=False)
class Regions(_Fields):
    """RegionsSpec is the section train.regions of a scenario.

    every: all regions average together once in this number of rounds. It divides
        `target_outer_steps`.
    workers: the workers of each region. If absent, the groups of `real.links` are the regions.
    """

    every: int
    workers: Optional[Dict[str, List[int]]] = None


@dataclass(repr=False)
class BaselineParameters(_Fields):
    """Baseline waits for every member, as synchronous training does. A round stops waiting only
    for members that fall silent, give up or leave.
    """



@dataclass(repr=False)
class AdaptiveParameters(_Fields):
    """Policy waits for each member as long as a healthy member with its history may take. It
    does not wait for members whose contribution costs the others more than it is worth. It
    evicts nobody. Durations are compared by their logarithms, because step times are positive
    and skewed. A member's typical duration is the median of its last window ones; the spread
    is 1.4826 times the median absolute deviation from it over all members, a consistent
    estimate of a normal's standard deviation (P. Rousseeuw and C. Croux, Alternatives to the
    Median Absolute Deviation, 1993). The policy waits for a member until its typical duration
    × e^(Z × spread). If the quorum came later than its own spread allows for, the waiting
    time is stretched by the same factor: a cause that makes everybody late is nobody's fault.
    The policy waits for the k members that are expected first. It chooses the k that yields
    the most contributions per unit of time, k ÷ (duration of a round of k): see C. Xu et al.,
    Dynamic Backup Workers for Parallel Machine Learning (2020). The other members, and
    members that have missed several rounds in a row, get another chance after 2, 4, 8, …
    rounds.

    quorum: the fraction of the members, rounded up, that must have arrived before a round may
        close without the others (default 0.5)
    z: the number of spreads to wait beyond a member's typical duration. If durations are log-
        normal, 0.13 % exceed 3 spreads (default 3)
    window: the number of durations to remember of each member (default 8)
    gain: the least increase in contributions per time, as a fraction, for which slow members
        are left out (default 0.05)
    prior: the spread assumed in the first round, without history (default 0.3)
    """

    quorum: Optional[float] = None
    z: Optional[float] = None
    window: Optional[int] = None
    gain: Optional[float] = None
    prior: Optional[float] = None


@dataclass(repr=False)
class BackupParameters(_Fields):
    """Backup closes a round as soon as all but B members have arrived, as synchronous training
    with B backup workers does. The last arrivals are left out, slow or not (J. Chen et al.,
    Revisiting Distributed Synchronous SGD, 2016, https://arxiv.org/abs/1604.00981). It evicts
    nobody.

    b: the number of members that a round need not wait for (default 1)
    """

    b: Optional[int] = None


@dataclass(repr=False)
class DeadlineParameters(_Fields):
    """FixedDeadline closes every round at a fixed time after its beginning, with a quorum. It
    evicts nobody.

    after: the time from a round's beginning to its deadline. 0 means `factor` times the median
        member's time for the first round. The first round then has no deadline (µs, default 0)
    factor: if `after` is 0: the time to a deadline, divided by the median member's time for the
        first round (default 1.5)
    quorum: the fraction of the members, rounded up, that must have arrived before a round may
        close without the others (default 0.5)
    """

    after: Optional[Union[int, str]] = None
    factor: Optional[float] = None
    quorum: Optional[float] = None


@dataclass(repr=False)
class QuorumParameters(_Fields):
    """Quorum closes a round as torchft's lighthouse closes a quorum
    (https://github.com/pytorch/torchft, src/lighthouse.rs): at once when all participants of
    the last round have arrived, otherwise join_timeout after the first arrival, if more than
    half of the members and at least min_replicas have arrived. It evicts nobody.

    min_replicas: the number of members, at least a majority, that must have arrived, unless all
        participants of the last round have arrived (default 1)
    join_timeout: the time from the first arrival until the round may close. The default is from
        torchft's tests (µs, default 100000)
    """

    min_replicas: Optional[int] = None
    join_timeout: Optional[Union[int, str]] = None


@dataclass(repr=False)
class SampleParameters(_Fields):
    """Sample waits in each round for a fraction of the members, drawn anew, as federated
    averaging samples its clients (B. McMahan et al., Communication-Efficient Learning of Deep
    Networks from Decentralized Data, 2017, https://arxiv.org/abs/1602.05629, where the
    fraction is C). There only the drawn clients compute. Here every member computes, and
    members that arrive in time without having been drawn take part, too. The policy evicts
    nobody.

    fraction: the fraction of the members, rounded up, that a round waits for (default 0.5)
    """

    fraction: Optional[float] = None


@dataclass(repr=False)
class StragglerParameters(_Fields):
    """Straggler closes a round at an adaptive deadline, which lies max(min_slack, median +
    K·MAD) after the round's first arrival. Median and MAD are taken over the arrival offsets
    in the window.

    quorum: the fraction of the members, rounded up, that must have arrived before a round may
        close without the others (default 0.75)
    k: the deadline comes `k` median absolute deviations after the median arrival. A higher `k`
        waits longer for workers whose times vary (default 3)
    window: the number of arrival offsets to remember. Rounds are remembered or forgotten whole,
        because the last offsets of a round are its slowest. The last round is always remembered
        (default 32)
    min_history: the number of closed rounds before the first deadline (default 1)
    min_slack: the least time between the first arrival and the deadline (µs, default 1)
    sideline_limit: the number of rounds in a row that a member may miss. The next miss evicts
        it. Rounds during a joiner's first fetch do not count (default 2)
    finish_steps: A sidelined member finishes its inner steps before it catches up. Otherwise it
        drops these steps when the next round begins. The missed round never uses them (default
        false)
    """

    quorum: Optional[float] = None
    k: Optional[float] = None
    window: Optional[int] = None
    min_history: Optional[int] = None
    min_slack: Optional[Union[int, str]] = None
    sideline_limit: Optional[int] = None
    finish_steps: Optional[bool] = None


@dataclass(repr=False)
class TorchftParameters(_Fields):
    """Policy has the parameters of the lighthouse and of the managers. Times are in
    microseconds. A time of 0 has torchft's ratio to the heartbeat timeout.

    min_replicas: the least number of workers, or replica groups, in a quorum and in an outer
        step. Only a majority guarantees a single quorum at a time (default 1)
    join_timeout: the time to wait for other live workers, from the first request for a quorum.
        0 means 2 × `heartbeat_timeout`, as in torchft's README (µs, default 0)
    heartbeat_timeout: the silence that counts as death, at least 2 × `heartbeat_period`. 0
        means `heartbeat_period` × `heartbeat_miss_threshold` (µs, default 0)
    quorum_timeout: the time that a worker waits for a quorum before it dies. 0 means 12 ×
        `heartbeat_timeout` (µs, default 0)
    timeout: the time from a quorum until its outer step fails. 0 means 12 × `heartbeat_timeout`
        (µs, default 0)
    quorum_retries: how often a worker repeats a request that the lighthouse has forgotten. Then
        the worker waits for `quorum_timeout`, and dies (default 0)
    max_retries: the number of failed commits in a row that a group survives. One more kills the
        group (`reduce_failed`). 0 means any number, which is torchft's default. torchft's own 0
        (none) is not available (default 0)
    restarts: how often a group that died of `quorum_timeout` or `max_retries` restarts (default
        0)
    shrink_until: the number of outer steps for which contributors ask with `shrink_only`, which
        admits only members of the last quorum (default 0)
    sync: A group that heals takes part with its donor's contribution, as in torchft with
        `use_async_quorum=False`, which DiLoCo requires. Otherwise it contributes zeros (default
        false)
    init_sync: at step 0, all groups take the first group's state, as torchft does by default
        (default false)
    """

    min_replicas: Optional[int] = None
    join_timeout: Optional[Union[int, str]] = None
    heartbeat_timeout: Optional[Union[int, str]] = None
    quorum_timeout: Optional[Union[int, str]] = None
    timeout: Optional[Union[int, str]] = None
    quorum_retries: Optional[int] = None
    max_retries: Optional[int] = None
    restarts: Optional[int] = None
    shrink_until: Optional[int] = None
    sync: Optional[bool] = None
    init_sync: Optional[bool] = None


@dataclass(repr=False)
class ScenarioFields(_Fields):
    """Scenario is one run: the workers, what happens to them, and the rules. Times are scenario
    time in microseconds, or have a unit, such as 30ms.

    name: the name of the scenario, without a slash. Records and reports are named after it. If
        absent, it is the file's name without its ending.
    description: one line that says what the scenario shows. `testbed list` prints it.
    seed: the seed fixes the variation of inner steps, the initial model, the data of each
        worker, and the links' loss and jitter.
    workers: the workers of the run. Entries with `ids` stand for many workers.
    injects: faults and changes that happen to workers and to the coordinator.
    inner_steps: inner steps that each worker takes per round.
    target_outer_steps: the number of rounds, and so of outer steps, in a complete run.
    horizon: the time at which an incomplete run ends. Joins and injects after it are refused
        (µs)
    heartbeat_period: the time between a worker's heartbeats to the coordinator (µs)
    heartbeat_miss_threshold: A member silent for `heartbeat_period` ×
        `heartbeat_miss_threshold` is evicted.
    base_latency: the one-way latency of a message. On a real network, the default
        `one_way_delay` of paths is `base_latency` × `time_scale` (µs)
    bandwidth_bpus: the bandwidth of transfers in the simulator, in bytes per microsecond or as
        a rate such as 1gbit. Real runs ignore it (B/µs, such as "1gbit")
    state_bytes: the size of the outer state in the simulator, in bytes or as a size such as
        64MiB. Real runs ignore it (B, such as "64MiB")
    policy: when a round closes, which workers may return, and when joiners contribute. Each
        policy's parameters are in a section of its name.
    real: how the scenario is played on a real network.
    work: how long inner steps take. Without `work`, only `inner_step_jitter` varies them.
    train: what the workers train. Without it, they train the stand-in `quadratic`.
    """

    seed: int
    workers: List[WorkerSpec]
    inner_steps: int
    target_outer_steps: int
    horizon: Union[int, str]
    heartbeat_period: Union[int, str]
    heartbeat_miss_threshold: int
    base_latency: Union[int, str]
    bandwidth_bpus: Union[int, str]
    state_bytes: Union[int, str]
    name: Optional[str] = None
    description: Optional[str] = None
    injects: List[Inject] = field(default_factory=lambda: [])
    policy: Policies = field(default_factory=lambda: Policies())
    real: Real = field(default_factory=lambda: Real())
    work: Optional[Work] = None
    train: Optional[Train] = None
