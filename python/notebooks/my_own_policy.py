# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # My own policy in 20 lines
#
# Eight workers share machines with other people's jobs. Now and then one of them becomes
# three times slower for a while. No worker is bad, so evicting the slow ones is wrong.
# But to wait for whoever is slow just now is expensive, too.
#
# Here is an idea to test: *wait until enough workers have arrived, then a little longer,
# then go on*. This notebook turns it into a policy, tries it in the simulator, finds
# good parameters, and plays it on a real network.

# %%
from typing import Annotated

import testbed as tb

# %% [markdown]
# ## The policy
#
# A policy is a class with up to five methods, and what it does not override is as in the
# baseline, which waits for everybody. This one answers two questions.
#
# - `deadline` is asked when a round begins and at each change in it. Once a `share` of
#   the members has arrived, the answer is a time: as much later as `longer` times what
#   it took until now. The numbers behind it go on record.
# - `enough` is asked when somebody has arrived: may the round close without the others?
#   Yes, once the deadline has come.
#
# Attributes with a type and a default are parameters. `Range` says where a search may
# try them.

# %%
class Patience(tb.Policy):
    share: Annotated[float, tb.Range(0.3, 1)] = 0.75
    longer: Annotated[float, tb.Range(0.02, 2, log=True)] = 0.25

    def deadline(self, round):
        needed = tb.share(self.share, len(round.members))
        if round.deadline is not None or round.arrived < needed:
            return None
        took = round.now - round.start
        wait = max(round.min_slack, int(self.longer * took))
        return tb.Deadline(round.now + wait, {"took_us": took, "wait_us": wait})

    def enough(self, round):
        return round.overdue


# %% [markdown]
# `round.min_slack` is the shortest wait that makes sense on a real network, where workers
# that are equally fast never arrive at exactly the same time. `tb.share(0.75, 8)` is 6:
# a fraction of the members, rounded up.
#
# ## Does it help?

# %%
scenario = tb.Scenario.library("noisy_neighbours")
policies = ["baseline", "straggler", "backup", Patience(), Patience(longer=1)]
first = tb.compare(scenario, policies, world="sim", repeat=5)
first.plot();

# %% [markdown]
# Each point is one run, and each colour is a policy that was played with five seeds.
# Further left is faster. Further down loses less of the workers' work. So the best place
# is the lower left corner.
#
# The baseline loses nothing and is slowest. All others trade work for time. With more
# patience (`longer=1`) the policy lies between the baseline and the rest. Seeds differ
# more than the faster policies do, so medians say more than single points.

# %%
runs = first.to_frame()
runs = runs[runs["world"] == "sim_links"].groupby("policy", sort=False)
runs[["wall_clock_us", "work_lost", "sidelined", "evicted"]].median().round(3)

# %% [markdown]
# The straggler policy evicts workers for good. Patience evicts nobody, as intended.
#
# ## What did it decide, and why?
#
# The record has the numbers that the policy gave with its deadline.

# %%
left_out = first.sim["Patience"].sidelined
for decision in left_out[:4]:
    deadline = decision.why["deadline"]
    print(
        f"round {decision.round}: worker {decision.worker} was left out,",
        f"{decision.why['arrived']} of {decision.why['members']} had arrived,",
        deadline["numbers"],
    )

# %% [markdown]
# ## Which parameters are good?
#
# `sweep` plays a grid. The parameters of a policy of your own are `policy.program.NAME`.

# %%
axis = {"policy.program.longer": [0.1, 0.25, 0.5, 1, 2]}
grid = tb.sweep(scenario, axis, [Patience()], seeds=(1, 10), network="links")
points = grid.to_frame().groupby("policy.program.longer")
points[["wall_clock_us", "lost"]].mean().round(3)

# %% [markdown]
# Each line is a mean over ten seeds. More patience costs time and saves work, as one would
# guess. Below 0.25 little changes any more, because deadlines are then at `min_slack`.
#
# `tune` searches all
# parameters of all policies at once, within their ranges, and keeps the *Pareto front*:
# the points that no other point beats in both wall-clock and work lost.

# %%
best = tb.tune(scenario, ["baseline", "straggler", Patience()], points=60, seeds=3)
best

# %% [markdown]
# Lines of Patience and of straggler take turns, so neither policy is simply better. Each
# is the best answer to some price of lost work, and Patience needs two parameters where
# straggler has six.
#
# ## On a real network
#
# The same object now decides for real worker processes. It takes about 15 seconds, and
# needs Linux. A run on a busy machine can be invalid, and is still shown.

# %%
scenario.target_outer_steps = 6
try:
    both = tb.compare(scenario, ["baseline", Patience()], time_scale=150)
except tb.InvalidResult as err:
    print("Do not trust these measurements, and run the cell again:", err)
    both = err.result
except tb.Unsupported as err:
    print("No real network on this machine:", err)
    both = tb.compare(scenario, ["baseline", Patience()], world="sim")
both

# %% [markdown]
# The gain on the real network is smaller than the simulated one if the network takes a
# large part of each round: Patience shortens the wait for workers, and not the
# all-reduce. Look at the column *on planned links* first. If it already shows a small
# gain, the network is the reason. If only *measured* does, this machine is.
#
# ## If the policy is wrong
#
# A policy must answer from what it is asked alone. It may not look at a clock, and it may
# not set a deadline in the past. What it does wrong ends the run with one error.

# %%
class Hasty(Patience):
    def deadline(self, round):
        return round.start - 1


try:
    tb.simulate(scenario, Hasty())
except tb.TestbedError as err:
    print(err)

# %% [markdown]
# ## What to try next
#
# - Let the policy learn: override `closed(self, round)`, remember when each of
#   `round.members` arrived, and do not wait for a member that was late in the last two
#   rounds. Attributes set there are forgotten when the next run begins.
# - Evict with `late(self, round, member)`: `return member.misses > 3`.
# - Try it where workers differ for good (`"mixed_gpus"`), or where steps vary
#   (`"lognormal_16"`, `"short_stalls"`). Is one setting good everywhere?
# - Save the class in a file that ends with `Patience.main()`. Then the command line takes
#   it, too: `testbed compare noisy_neighbours --policy baseline,program:./patience.py`.
# - `docs/policies.md` has the protocol behind it, which any language can speak.
# - Faster may still mean a worse model: the notebook `what_a_policy_costs_in_loss`.
