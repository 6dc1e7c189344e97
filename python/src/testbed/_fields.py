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

    join_at: (µs)
    inner_step_mean: an inner step takes inner_step_mean ± inner_step_jitter, uniformly, if Work
        says nothing else (µs)
    inner_step_jitter: (µs)
    initial_step: how many outer steps its first process says to have taken, which holds the
        initial state. It takes a policy in which workers have their own.
    lighthouse: the number of the one that it asks, where there are several.
    """

    id: int
    inner_step_mean: Union[int, str]
    join_at: Optional[Union[int, str]] = None
    inner_step_jitter: Optional[Union[int, str]] = None
    initial_step: Optional[int] = None
    lighthouse: Optional[int] = None


@dataclass(repr=False)
class Inject(_Fields):
    """Inject is something that happens to workers at a time.

    op: (Crash | Leave | Slow | Restore | Pause | Resume | Partition | ClearPartition |
        CoordinatorCrash | Restart | Fail | Preempt | FailReduce)
    at: (µs)
    ids: (such as "0-999")
    down: for how long nobody coordinates after a CoordinatorCrash (µs)
    heartbeats: has a worker that is paused give heartbeats all the same.
    forgets: has torchft's lighthouse lose in a CoordinatorCrash what it knows.
    after: how long after a Restart the new process begins (µs)
    lighthouse: the one that a restarted worker asks from then on.
    notice: how long before its end a Preempt tells the worker (µs)
    alone: has a FailReduce come when the others can end theirs without the worker.
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
    """Policies are the parameters of the policies, and what holds under any of them.

    baseline: the parameters of the policy baseline
    adaptive: the parameters of the policy adaptive
    backup: the parameters of the policy backup
    deadline: the parameters of the policy deadline
    quorum: the parameters of the policy quorum
    sample: the parameters of the policy sample
    straggler: the parameters of the policy straggler
    torchft: the parameters of the policy torchft
    join: says from when on a late joiner contributes, under any policy. Empty:
        policy.JoinRunning.
    rejoin: says whether a worker may come back that was evicted alive or for its slowness,
        under any policy, and rejoin_rounds after how many outer steps. Empty:
        policy.RejoinNever; 0: 1.
    rejoin_rounds: (default 0)
    program: has parameters of the policies that are programs, by name: of all of them, and as
        text, because only a program knows its parameters.
    staleness_weight: staleness_weight, 0 to 1, is the weight with which a worker adds a pseudo-
        gradient that came too late for its round to its next contribution. 0 discards it. No
        decision depends on it (default 0)
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
    dilation: by how much everything on the real network takes longer by the machine's clock
        than real time says: links, heartbeats, deadlines, inner steps. At least 1, which it is
        if not given; results stay those of an undilated run, on a machine that is so many times
        as fast (default 1)
    compute: says how long inner steps take.
    parameters: the length of the model's float32 vector. Where Train has a model, it is that
        one's (default 1000000)
    min_slack: a floor, in real time, under the deadlines that policies derive from arrivals:
        arrivals closer together than this say more about the machine that all workers share
        than about a worker. If not given it is 50 ms and 10 ms per worker (such as "25ms")
    stall_timeout: the real time after which a reduction in which nobody receives anything has
        stalled. Zero: HeartbeatPeriod × HeartbeatMissThreshold, and at least two seconds, and
        eight of the slowest round trips with four times the queues on their way (such as
        "25ms")
    heed_unreachable: has the coordinator ping who is silent and act on the ICMP error that
        nobody listens there any more, so that a crash is noticed in about a heartbeat period.
        Without it a crash is as silent as in the simulator, and as one that takes the machine
        along (default false)
    checkpoint_every: the number of outer steps from one checkpoint to the next; 0 is none
        (default 5)
    upload: has outer states sent to a store on the network.
    tcp: TCP is the congestion control of TCP connections in the nodes, as the kernel names it:
        that of the user's programs, and of what benchmarks put beside the ring. Workers speak
        QUIC. Empty: shaping.DefaultTCP.
    all_reduce: says how pseudo-gradients are averaged.
    injects: what happens to links. They are here and not beside the injects of workers because
        a simulator without links has no use for them.
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

    every: the number of outer steps from one upload to the next; 0 is none (default 0)
    yields: has an upload wait while its worker reduces. Without it they compete for the
        worker's link (default false)
    """

    every: Optional[int] = None
    yields: Optional[bool] = None


@dataclass(repr=False)
class Links(_Fields):
    """Spec is the `real.links` section of a scenario. A property that is absent is nil, so that
    "not given" and "zero" stay different. The closest level wins, property by property:
    default, then group, then node or pair; and within a level what is written out wins over
    its preset.

    default: holds the properties of every node and pair that is not named.
    groups: sets of nodes with an access link in common, by name.
    paths: holds the paths between groups, and within a group.
    nodes: holds the access links of single nodes, by node name.
    pairs: holds the paths of single ordered pairs of nodes.
    """

    default: Properties = field(default_factory=lambda: Properties())
    groups: Optional[Dict[str, Group]] = None
    paths: Optional[List[GroupPath]] = None
    nodes: Optional[Dict[str, Access]] = None
    pairs: Optional[List[PairPath]] = None


@dataclass(repr=False)
class Properties(_Fields):
    """Properties are an access link and a path together.

    access_preset: access_preset gives what the fields below do not (such as "cable")
    rate_up: what the node can send, rate_down what it can receive (such as "100mbit")
    rate_down: (such as "100mbit")
    queue: how much may wait for either rate before packets are dropped (such as "20ms")
    access_one_way_delay: the time a packet spends on this link: it adds to the one-way delay of
        every path from and to the node (such as "25ms")
    path_preset: path_preset gives what the fields below do not (such as "dallas-tokyo")
    one_way_delay: (such as "25ms")
    rate: what the path carries, beside the rates of the access links (such as "100mbit")
    jitter: the variation of one_way_delay. What it measures depends on the distribution. It
        does not reorder packets (such as "25ms")
    jitter_distribution: (uniform | normal | pareto)
    loss: the share of packets lost, each independently of the others. It takes the place of a
        loss_burst of a farther level, and loss_burst that of a loss (such as "0.1%")
    duplicate: the share of packets that arrive twice (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets in which one bit is flipped (such as "0.1%")
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
    noise channels", 1963) with the parameters of netem(8). The path is inside a burst or
    outside; every packet is first lost or not, by the state, and then may change the state.
    The zero value is no loss at all.

    enter: the probability, per packet, that a burst begins (p) (such as "0.1%")
    leave: the probability, per packet, that it ends (r): bursts are 1/leave packets long on
        average (such as "0.1%")
    loss_inside: the share lost inside a burst (1-h) (such as "0.1%")
    loss_outside: the share lost outside (1-k), none if not given (such as "0.1%")
    """

    enter: Union[float, str]
    leave: Union[float, str]
    loss_inside: Union[float, str]
    loss_outside: Optional[Union[float, str]] = None


@dataclass(repr=False)
class Group(_Fields):
    """Group is a set of nodes.

    nodes: names ("coordinator"), ranges ("w0-w20") and patterns ("w*").
    access_preset: access_preset gives what the fields below do not (such as "cable")
    rate_up: what the node can send, rate_down what it can receive (such as "100mbit")
    rate_down: (such as "100mbit")
    queue: how much may wait for either rate before packets are dropped (such as "20ms")
    access_one_way_delay: the time a packet spends on this link: it adds to the one-way delay of
        every path from and to the node (such as "25ms")
    """

    nodes: List[str]
    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None


@dataclass(repr=False)
class GroupPath(_Fields):
    """GroupPath is the path between the nodes of two groups: between both ways, or from one to
    the other. A group's path to itself joins its own nodes.

    path_preset: path_preset gives what the fields below do not (such as "dallas-tokyo")
    one_way_delay: (such as "25ms")
    rate: what the path carries, beside the rates of the access links (such as "100mbit")
    jitter: the variation of one_way_delay. What it measures depends on the distribution. It
        does not reorder packets (such as "25ms")
    jitter_distribution: (uniform | normal | pareto)
    loss: the share of packets lost, each independently of the others. It takes the place of a
        loss_burst of a farther level, and loss_burst that of a loss (such as "0.1%")
    duplicate: the share of packets that arrive twice (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets in which one bit is flipped (such as "0.1%")
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

    access_preset: access_preset gives what the fields below do not (such as "cable")
    rate_up: what the node can send, rate_down what it can receive (such as "100mbit")
    rate_down: (such as "100mbit")
    queue: how much may wait for either rate before packets are dropped (such as "20ms")
    access_one_way_delay: the time a packet spends on this link: it adds to the one-way delay of
        every path from and to the node (such as "25ms")
    """

    access_preset: Optional[str] = None
    rate_up: Optional[str] = None
    rate_down: Optional[str] = None
    queue: Optional[str] = None
    access_one_way_delay: Optional[str] = None


@dataclass(repr=False)
class PairPath(_Fields):
    """Pair is the path from one node to another; the way back is its own pair.

    path_preset: path_preset gives what the fields below do not (such as "dallas-tokyo")
    one_way_delay: (such as "25ms")
    rate: what the path carries, beside the rates of the access links (such as "100mbit")
    jitter: the variation of one_way_delay. What it measures depends on the distribution. It
        does not reorder packets (such as "25ms")
    jitter_distribution: (uniform | normal | pareto)
    loss: the share of packets lost, each independently of the others. It takes the place of a
        loss_burst of a farther level, and loss_burst that of a loss (such as "0.1%")
    duplicate: the share of packets that arrive twice (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets in which one bit is flipped (such as "0.1%")
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
    simulator's planned links: churn's network, where an all-reduce has a fixed price, has no
    use for it.

    algorithm: ring, direct or hierarchical. The last one's groups are those of the links
        (default "ring")
    order: that of the ring, one of Orders (default "naive")
    rates: those between workers that OrderGivenRates goes by, from row to column in the order
        of the workers; the diagonal is not read.
    connections: the number of QUIC connections to each peer; 0 is as many as the losses and the
        jitter on the path ask for (default 0)
    bits: the size of a value, one of bits (default 8)
    block: the number of values that share a scale, a multiple of MinBlock up to MaxBlock.
        Pieces are whole blocks, also of values without scales (default 1024)
    entropy: says when codes are shortened by entropy coding: auto, on or off (auto | on | off,
        default "auto")
    error_feedback: has each worker add to its pseudo-gradient what quantisation took from the
        one before; Feedback says whether there is any (default false)
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
    """LinkInject is something that happens to a link for a while.

    op: (Link | LinkTrace | Cut | Refuse | Flap)
    at: (µs)
    until: when it is over; nil: never (µs)
    id: what it happens to: ID is a worker and its access link, from and to are the nodes of a
        path, between those of two paths, there and back.
    period: how often a Flap cuts, down for how long each time (µs)
    down: (µs)
    direction: Up or down, and file the file of a LinkTrace, relative to that of the scenario.
        Pace is what it holds.
    access_preset: access_preset gives what the fields below do not (such as "cable")
    rate_up: what the node can send, rate_down what it can receive (such as "100mbit")
    rate_down: (such as "100mbit")
    queue: how much may wait for either rate before packets are dropped (such as "20ms")
    access_one_way_delay: the time a packet spends on this link: it adds to the one-way delay of
        every path from and to the node (such as "25ms")
    path_preset: path_preset gives what the fields below do not (such as "dallas-tokyo")
    one_way_delay: (such as "25ms")
    rate: what the path carries, beside the rates of the access links (such as "100mbit")
    jitter: the variation of one_way_delay. What it measures depends on the distribution. It
        does not reorder packets (such as "25ms")
    jitter_distribution: (uniform | normal | pareto)
    loss: the share of packets lost, each independently of the others. It takes the place of a
        loss_burst of a farther level, and loss_burst that of a loss (such as "0.1%")
    duplicate: the share of packets that arrive twice (such as "0.1%")
    reorder: the share of packets that overtake: they are sent at once, without the one-way
        delay (such as "0.1%")
    corrupt: the share of packets in which one bit is flipped (such as "0.1%")
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

    classes: kinds of workers. A worker in none has the factor 1.
    """

    steps: Optional[Steps] = None
    classes: Optional[List[WorkerClass]] = None
    noise: Optional[Noise] = None
    thermal: Optional[Thermal] = None
    diurnal: Optional[Diurnal] = None


@dataclass(repr=False)
class Steps(_Fields):
    """Steps says by what distribution the durations of inner steps vary. The mean is the
    worker's inner_step_mean.

    distribution: empty: Uniform (uniform | normal | lognormal | pareto | trace)
    sigma: the standard deviation over the mean; of LogNormal, that of the logarithm.
    shape: Pareto's exponent, in place of sigma.
    file: that of a Trace, relative to the scenario's. Ratios is what it holds, over the mean of
        it.
    """

    distribution: Optional[str] = None
    sigma: Optional[float] = None
    shape: Optional[float] = None
    file: Optional[str] = None


@dataclass(repr=False)
class WorkerClass(_Fields):
    """Class is a kind of workers.

    ids: (such as "0-999")
    factor: by how much their inner steps take longer.
    phase: added to that of Diurnal: a class can be a region.
    """

    name: str
    ids: List[int]
    factor: float
    phase: Optional[float] = None


@dataclass(repr=False)
class Noise(_Fields):
    """Noise is slowness that comes and goes, as neighbours on the same machine do: a Markov
    chain of two states with exponential sojourns, for each worker by itself.

    mean_ok: (µs)
    mean_slow: (µs)
    """

    slow_factor: float
    mean_ok: Union[int, str]
    mean_slow: Union[int, str]


@dataclass(repr=False)
class Thermal(_Fields):
    """Thermal is throttling: a worker's temperature rises for the time heat, then its steps take
    slow_factor as long for the time cool. This is what the lumped thermal resistance and
    capacitance of Skadron et al., "Temperature-aware microarchitecture" (ISCA 2003), does
    under constant load between two thresholds. Time at a barrier counts as load. Workers
    begin anywhere in the cycle.

    heat: (µs)
    cool: (µs)
    """

    slow_factor: float
    heat: Union[int, str]
    cool: Union[int, str]


@dataclass(repr=False)
class Diurnal(_Fields):
    """Diurnal is load that follows the time of day: steps take 1 + amplitude·sin(2π(t/period +
    phase)) as long.

    period: (µs)
    phase: a share of the period.
    """

    amplitude: float
    period: Union[int, str]
    phase: Optional[float] = None


@dataclass(repr=False)
class Train(_Fields):
    """Spec is the section `train`.

    task: what is trained; empty: Quadratic (quadratic | charlm | program)
    text: the file that CharLM trains on, relative to the scenario's; empty: the one that comes
        with the program. Corpus is what it holds.
    split: how workers share the text; empty: charlm.IID.
    regions: has regions take most outer steps by themselves; nil: all are of all workers.
    group_world_size: how many workers are a replica group of torchft's, in the order of their
        ids: its ranks, each with a part of the parameters. 0: 1.
    program: the command line. It is run in Dir, the folder of the scenario's file.
    time_limit: time_limit bounds, in real time, how long the program may take to join, for an
        inner step, and to hand its parameters over; 0: DefaultTimeLimit (such as "25ms")
    tokens_per_step: how many tokens an inner step trains on; 0: that is not told.
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
    """Model is the shape of CharLM's transformer, and what a step trains on. What is 0 is as
    charlm.Defaults has it.

    context: tokens
    batch: sequences
    """

    layers: Optional[int] = None
    width: Optional[int] = None
    heads: Optional[int] = None
    context: Optional[int] = None
    batch: Optional[int] = None


@dataclass(repr=False)
class InnerOptimiser(_Fields):
    """Inner is CharLM's inner optimiser, AdamW. What is not given is as charlm.Defaults has it.

    warmup: steps
    """

    rate: Optional[float] = None
    decay: Optional[float] = None
    warmup: Optional[int] = None


@dataclass(repr=False)
class OuterOptimiser(_Fields):
    """Outer is the outer optimiser, and what of the parameters a round exchanges.

    rate: rate and momentum are as train.DiLoCo has them if they are not given.
    fragments: to how many parts the layers are dealt, of which a round exchanges one, in turn;
        0: one, which is everything.
    mix: the share of its local parameters that a worker keeps of a fragment when its outer step
        is there.
    overlap: for how many inner steps of the next round a reduction has time before they wait
        for it.
    correction: what a worker does about outer steps that come a round late: nothing, or Eager.
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

    every: the number of rounds from one that all regions take part in together to the next; 1:
        all rounds are such.
    workers: the workers of each region; nil: the groups of the links are the regions.
    """

    every: int
    workers: Optional[Dict[str, List[int]]] = None


@dataclass(repr=False)
class BaselineParameters(_Fields):
    """Baseline waits for every member, as synchronous training does: only who is silent, gives
    up or leaves keeps a round from waiting for it.
    """



@dataclass(repr=False)
class AdaptiveParameters(_Fields):
    """Policy waits for each member as long as a healthy one with its history may take, and not
    at all for those whose contribution costs the others more than it is worth. It evicts
    nobody. Durations are compared by their logarithms, because step times are positive and
    skewed. A member's typical duration is the median of its last window ones; the spread is
    1.4826 times the median absolute deviation from it over all members, a consistent estimate
    of a normal's standard deviation (P. Rousseeuw and C. Croux, Alternatives to the Median
    Absolute Deviation, 1993). A member is waited for until its typical duration × e^(Z ×
    spread). If the quorum came later than its own spread allows for, this time is stretched
    by the same factor: a cause that makes everybody late is nobody's fault. The policy waits
    for the k members that are expected first. It chooses the k that yields the most
    contributions per unit of time, k ÷ (duration of a round of k): see C. Xu et al., Dynamic
    Backup Workers for Parallel Machine Learning (2020). The other members, and members that
    have missed several rounds in a row, get another chance after 2, 4, 8, … rounds.

    quorum: the fraction of the members, in (0, 1], that must have arrived before a round may
        close without the others: ⌈quorum × members⌉ (default 0.5)
    z: Z is how many spreads beyond its typical duration a member is waited for. Of healthy
        members whose logarithms are normal, 0.13 % take longer than 3 (default 3)
    window: the number of durations that are kept of a member (default 8)
    gain: by what share there must be more contributions in a time for members to be left out
        for being slow (default 0.05)
    prior: the spread that is assumed while there is no history (default 0.3)
    """

    quorum: Optional[float] = None
    z: Optional[float] = None
    window: Optional[int] = None
    gain: Optional[float] = None
    prior: Optional[float] = None


@dataclass(repr=False)
class BackupParameters(_Fields):
    """Backup closes a round as soon as all but B members have arrived, as synchronous training
    with B backup workers does: whoever comes last is left out, slow or not (J. Chen et al.,
    Revisiting Distributed Synchronous SGD, 2016, https://arxiv.org/abs/1604.00981). It evicts
    nobody.

    b: B is the number of members that a round need not wait for (default 1)
    """

    b: Optional[int] = None


@dataclass(repr=False)
class DeadlineParameters(_Fields):
    """FixedDeadline closes every round the same time after it began, with a quorum. It evicts
    nobody.

    after: the time from the beginning of a round to its deadline. 0 takes factor times as long
        as the median member needed for the first round, which has no deadline then (µs, default
        0)
    factor: (default 1.5)
    quorum: the fraction of the members, in (0, 1], that must have arrived before a round may
        close without the others: ⌈quorum × members⌉ (default 0.5)
    """

    after: Optional[Union[int, str]] = None
    factor: Optional[float] = None
    quorum: Optional[float] = None


@dataclass(repr=False)
class QuorumParameters(_Fields):
    """Quorum closes a round as torchft's lighthouse closes a quorum
    (https://github.com/pytorch/torchft, src/lighthouse.rs): at once, when all that took part
    in the round before have arrived; else join_timeout after the first arrival, if more than
    half of the members and at least min_replicas have arrived. It evicts nobody.

    min_replicas: (default 1)
    join_timeout: (µs, default 100000)
    """

    min_replicas: Optional[int] = None
    join_timeout: Optional[Union[int, str]] = None


@dataclass(repr=False)
class SampleParameters(_Fields):
    """Sample waits in each round for a fraction of the members, drawn anew, as federated
    averaging samples its clients (B. McMahan et al., Communication-Efficient Learning of Deep
    Networks from Decentralized Data, 2017, https://arxiv.org/abs/1602.05629, where the
    fraction is C). There only those that are drawn compute; here everybody does, and who
    arrives in time without having been drawn takes part, too. It evicts nobody.

    fraction: that of the members, in (0, 1], that a round waits for: ⌈fraction × members⌉
        (default 0.5)
    """

    fraction: Optional[float] = None


@dataclass(repr=False)
class StragglerParameters(_Fields):
    """Straggler closes a round at an adaptive deadline, which lies max(min_slack, median +
    K·MAD) after its first arrival; median and MAD are taken over the arrival offsets in the
    window.

    quorum: the fraction of the members, in (0, 1], that must have arrived before a round may
        close without the others: ⌈quorum × members⌉ (default 0.75)
    k: K is the number of median absolute deviations of tolerance. Raising it waits longer for
        workers whose times vary (default 3)
    window: the number of arrival offsets to look back on. Rounds are kept or forgotten whole,
        because the last offsets of a round are its slowest (default 32)
    min_history: the number of closed rounds before the first deadline (default 1)
    min_slack: the least time between the first arrival and the deadline (µs, default 1)
    sideline_limit: the number of consecutive rounds a member may miss; the next one evicts it
        (default 2)
    finish_steps: finish_steps lets a sidelined member finish the inner steps of the round that
        went on without it before it catches up. Else it drops them when the next round begins.
        That round gets nothing of them either way (default false)
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
    """Policy are the parameters, of the lighthouse and of the managers. Times are in
    microseconds; one that is 0 is to the heartbeat timeout as torchft's is.

    min_replicas: how many workers a quorum needs, and an outer step to count. Only more than
        half of all workers guarantee that there is one quorum at a time (default 1)
    join_timeout: how long those that ask for a quorum wait for others that live, from the first
        that asks. 0: 2 heartbeat timeouts (µs, default 0)
    heartbeat_timeout: the silence after which a worker does not live, at least two heartbeat
        periods. 0: that after which other policies evict it (µs, default 0)
    quorum_timeout: how long a worker waits for a quorum before it dies. 0: 12 heartbeat
        timeouts (µs, default 0)
    timeout: how long after its quorum an outer step has failed. 0: 12 heartbeat timeouts (µs,
        default 0)
    quorum_retries: how often a worker repeats a request that was lost with a lighthouse that
        forgets. Then it waits for quorum_timeout, and dies (default 0)
    max_retries: how many failed commits in a row a group survives: it dies of one more. 0: any
        number (default 0)
    restarts: how often a group that died of quorum_timeout or max_retries is started again
        (default 0)
    shrink_until: how many outer steps have to be committed before those that contribute let in
        others than those of the last quorum (shrink_only) (default 0)
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


@dataclass(repr=False)
class ScenarioFields(_Fields):
    """Scenario is one run: the workers, what happens to them, and the rules. Times are scenario
    time in microseconds, or have a unit, such as 30ms.

    name: name is, where the file has none, the file's base name without its ending.
    horizon: (µs)
    heartbeat_period: A member silent for heartbeat_period × heartbeat_miss_threshold is evicted
        (µs)
    base_latency: the one-way latency of a message (µs)
    bandwidth_bpus: in bytes per microsecond, or a rate such as 1gbit (B/µs, such as "1gbit")
    state_bytes: the size of the outer state in bytes, or a size such as 64MiB (B, such as
        "64MiB")
    work: says how long inner steps take beyond what workers say. If it is nil they vary by
        InnerStepJitter alone.
    train: says what is trained. If it is nil that is a stand-in.
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
