# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Calibrate and predict
#
# A simulator knows the network that you asked for. It does not know the machine that
# emulates the network: timers that fire late, processors that are shared, the time that a
# message spends in the kernel. How large is that part here, and does the simulator
# predict a real run once it knows about it?
#
# This notebook predicts a run, measures it, *calibrates* the simulator with some short
# experiments, and predicts the run again.

# %%
import pandas as pd

import testbed as tb

# %% [markdown]
# ## Can this machine do real runs?
#
# Measurements need Linux, and root or the right to create user namespaces. The next cell
# prints what is missing. If it prints "nothing", go on.
#
# If something is missing, the cells that measure raise `tb.Unsupported`. You can still
#
# - use a virtual machine (the folder `vagrant` of the repository has one), or
# - take a `calibration.json` that somebody made on a Linux machine, and give its path to
#   `simulate(..., calibration=...)`, which works on every system, or
# - take the directories of real runs that were made elsewhere: `tb.calibrate(refit=[...])`
#   fits them without running anything.

# %%
try:
    checks = tb.doctor().data
    missing = [c["name"] for c in checks if c["needed"] and not c["ok"]]
except tb.Unsupported as err:
    missing = [str(err)]
print("missing:", missing or "nothing")

# %% [markdown]
# ## A scenario in which the machine matters
#
# Rounds are short, so that whatever the machine adds is a large part of them. Scenario
# time is real time (`time_scale=1`). Fields have the names of scenario files, and
# `validate` says what is wrong with them.

# %%
link = tb.Properties(rate_up="100mbit", rate_down="100mbit", one_way_delay="5ms")
scenario = tb.Scenario(
    name="short_rounds",
    seed=1,
    workers=[tb.WorkerSpec(id=i, inner_step_mean=50_000) for i in range(4)],
    inner_steps=2,
    target_outer_steps=12,
    horizon=60_000_000,
    heartbeat_period=200_000,
    heartbeat_miss_threshold=10,
    base_latency=5_000,  # these three are churn's network, which is not used here
    bandwidth_bpus=12,
    state_bytes=300_000,
    real=tb.Real(time_scale=1, parameters=300_000, links=tb.Links(default=link)),
)
scenario.validate()

# %% [markdown]
# ## Predict and measure
#
# `network="links"` simulates the planned links: their rates, delays and queues. It assumes
# a machine that adds nothing.

# %%
before = tb.simulate(scenario, "baseline", network="links")
before

# %% [markdown]
# Now the same for real. If other programs keep this machine busy, the run may be
# *invalid*: it was not the network of the scenario. The result is shown all the same, but
# says more about the other programs than about the scenario.

# %%
def measured(scenario, policy):
    try:
        return tb.run(scenario, policy)
    except tb.InvalidResult as err:
        print("Do not trust this measurement:", err)
        return err.result


real = measured(scenario, "baseline")
real

# %%
def error(simulated, real):
    return f"{100 * (simulated.wall_clock_us / real.wall_clock_us - 1):+.1f} %"


print("error of the simulator that knows the links alone:", error(before, real))

# %% [markdown]
# A negative error means that the real run took longer than the links explain.
#
# ## Calibrate
#
# `calibrate` runs short experiments that differ in one thing each: bytes, delays, rates,
# workers. It fits what each message, reduction and byte costs on this machine, to explain
# the time that the links do not. All experiments take about two minutes. These five are
# enough for a scenario without joiners, and take about 20 seconds.

# %%
experiments = ["middle", "payload-20000", "payload-1200000", "delay-1ms", "workers-2"]
calibration = tb.calibrate(only=experiments, out="calibrated")
print(len(calibration.runs), "runs; the result is in calibrated/calibration.json")

# %%
costs = pd.DataFrame(calibration.costs).T
costs[costs["observations"] > 0].infer_objects().round(2)

# %% [markdown]
# Each line is a cost in the unit on the right, with a 95 % interval from `low` to `high`.
# All of them come on top of what the scenario and its links ask for: `step` of each inner
# step, `message` of each control message, `reduce` and `reduce_byte` of each all-reduce and
# each byte in it, `hop` of each hop in the ring, and `dial` of each connection. A wide
# interval, or one that reaches below 0, says that these few experiments cannot tell the
# cost from noise. With all experiments intervals become narrower.
#
# ## Predict again
#
# None of the experiments is our scenario, so this is a fair test.

# %%
file = "calibrated/calibration.json"
after = tb.simulate(scenario, "baseline", network="links", calibration=file)
print("links alone:     ", error(before, real))
print("with calibration:", error(after, real))

# %% [markdown]
# On a quiet machine the error becomes smaller by a good part. If it did not, look at two
# things. Was the run above invalid? And did the machine do something else during the
# experiments than during the run? A calibration holds for a machine *and* for what else
# this machine does.
#
# ## Does it hold for another policy?
#
# A prediction is useful if it answers a question that was not measured. Here worker 3
# becomes three times slower, and the straggler policy decides.

# %%
slower = scenario.copy()
slower.injects = [tb.Slow(id=3, at=0, factor=3)]
plain = tb.simulate(slower, "straggler", network="links")
known = tb.simulate(slower, "straggler", network="links", calibration=file)
again = measured(slower, "straggler")
print("links alone:     ", error(plain, again))
print("with calibration:", error(known, again))

# %%
def left_out(result):
    return [f"w{d.worker} in round {d.round}" for d in result.sidelined + result.evicted]


print("predicted:", left_out(known))
print("measured: ", left_out(again))

# %% [markdown]
# The second comparison is the more important one. If the same workers are left out in the same
# rounds, the simulator has predicted the decisions. A wall-clock can be right by chance.
#
# ## What to try next
#
# - Calibrate with all experiments: `tb.calibrate()`, and let the machine do nothing else.
# - `tb.compare(..., calibration="calibrated/calibration.json")` shows the calibrated
#   prediction beside the measurement, for several policies, with `prediction_error`.
# - `tb.calibrate([scenario])` also writes a copy of the scenario whose `base_latency` and
#   `bandwidth_bpus` suit this machine, for simulators in which each message has a price.
# - `tb.estimate(calibration=...)` uses the costs to estimate the days of a large run.
# - `docs/calibrate.md` explains each number.
