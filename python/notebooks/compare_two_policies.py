# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Compare two policies
#
# Four workers train with DiLoCo, and one of them is ten times slower than the others.
# Today's stacks wait for it in every round. Is it better to go on without it, and by
# how much? And does the answer of a simulator hold on a real network?
#
# A *membership policy* decides when a round closes and what happens to the workers
# that the round closes without. This notebook compares two of them:
#
# - **baseline** waits for every worker, as today's stacks do;
# - **straggler** closes a round at a deadline that adapts to earlier rounds, if three
#   quarters of the workers have arrived. A worker that is too late is *sidelined*: its
#   work of this round is lost. A worker that is too late three times in a row is
#   *evicted*.

# %%
import pandas as pd

import testbed as tb

# %% [markdown]
# ## The scenario
#
# A scenario says who takes part, how fast each worker is, what the network is like,
# and what goes wrong. The library has more than forty. This one is a headline of churn,
# a simulator of DiLoCo under churn. All times are in microseconds of *scenario time*.

# %%
scenario = tb.Scenario.library("persistent_straggler")
print(scenario)
print(scenario.workers[3])
print(scenario.injects)

# %% [markdown]
# Five rounds of two inner steps are played. An inner step takes 1 ms, and worker 3 takes
# ten times as long from the start. So a round should take about 20 ms for those who wait
# for worker 3, and about 2 ms for those who do not.
#
# ## In the simulator
#
# `compare` plays the scenario once for each policy. The first policy is the reference.

# %%
simulated = tb.compare(scenario, ["baseline", "straggler"], world="sim")
simulated

# %% [markdown]
# There are two simulated columns. *Simulated* uses churn's network, in which each
# message takes a fixed time. *On planned links* uses a model of the network that a real
# run would install, with its rates, delays and queues. The simulator is deterministic:
# these numbers are the same on every machine.
#
# The straggler policy is more than four times faster. It is not ten times faster, and
# the last column shows its price: a fifth of the inner steps that the workers could have
# contributed is in no outer step. The two pictures show why.

# %%
simulated.sim["baseline"].plot();

# %%
simulated.sim["straggler"].plot();

# %% [markdown]
# The horizontal scales differ. Under the baseline, three workers stand idle (white) most
# of the time. Under the straggler policy the first round is as slow as the baseline's,
# because a deadline follows from the arrivals of earlier rounds. Then worker 3 is
# sidelined twice (red triangles) and evicted (black cross), and rounds take 2 ms.
#
# ## Why was it left out?
#
# Each decision carries its reason, with the numbers it was made on.

# %%
eviction = simulated.sim["straggler"].evicted[0]
print(f"worker {eviction.worker} was evicted in round {eviction.round}: {eviction.reason}")
eviction.why

# %% [markdown]
# Three of four workers had arrived, and three were needed. In earlier rounds the median
# worker came 0 µs after the first one, and the median deviation from that was 0 µs. So
# the deadline lies at its minimum, one microsecond after the first arrival. Worker 3
# missed its third deadline in a row, and two misses in a row are allowed.
#
# A margin of one microsecond looks absurd, and it is: in a simulator without noise,
# healthy workers arrive in the same microsecond. Is the policy as good where they do not?
#
# ## On a real network
#
# The next cell plays both policies again, for real: worker processes on this machine, in
# network namespaces of their own, send real pseudo-gradients over links with the rates
# and delays of the scenario. `time_scale=100` makes 1 ms of scenario time last 100 ms.
# The cell takes about 15 seconds, needs Linux, and works as root or wherever ordinary
# users may create user namespaces.
#
# A real run can turn out *invalid*: the machine was so busy that the network was not
# what the scenario asked for. It is then reported as such, and the result is still there.

# %%
try:
    both = tb.compare(scenario, ["baseline", "straggler"], time_scale=100)
except tb.InvalidResult as err:
    print("Do not trust these measurements, and run the cell again:", err)
    both = err.result
except tb.Unsupported as err:
    print("No real network on this machine:", err)
    both = simulated
both

# %%
both.plot("wall-clock");

# %% [markdown]
# The straggler policy also wins on the real network, but by less than in the simulator.
# Compare the three bars of each policy. A good part of the difference between
# *simulated* and *measured* is already there *on planned links*. There pseudo-gradients
# take time to cross the links. And a deadline leaves room for noise: it lies at least
# `real.min_slack` after the first arrival, here 90 ms of real time. Both count for more in
# rounds of 2 ms than in rounds of 20. The machine itself adds the rest.
#
# `prediction_error` is that rest: (simulated − measured) ÷ measured, on the
# planned links. It differs from machine to machine and from run to run.

# %%
pd.Series(both.prediction_error, name="prediction error", dtype=float).to_frame().round(3)

# %% [markdown]
# Did the policy decide the same? Below is who was left out, in each world.

# %%
for world, result in both.results():
    if result.policy == "straggler":
        print(world)
        for decision in result.sidelined:
            print("    sidelined: worker", decision.worker, "in round", decision.round)
        for decision in result.evicted:
            print("    evicted:   worker", decision.worker, "in round", decision.round)

# %% [markdown]
# If the lists agree, the simulator has predicted the decisions and not only a time.
#
# ## What to try next
#
# - Is the result luck? `tb.compare(..., world="sim", repeat=20)` plays twenty seeds, and
#   `to_frame()` has a row for each run.
# - Make the straggler less extreme: `scenario.injects = [tb.Slow(id=3, at=0, factor=2)]`.
#   From which factor on does leaving it out pay?
# - Add more policies to the list: `"backup"`, `"deadline"`, `"adaptive"`,
#   `"straggler:quorum=0.5:k=5"`. `docs/policies.md` describes them.
# - Slow down time (`time_scale=300`). The machine's own delays then weigh less, and the
#   prediction error becomes smaller.
# - `both.report()` writes one HTML file with all of this and more.
# - Write a policy yourself: the notebook `my_own_policy`.
