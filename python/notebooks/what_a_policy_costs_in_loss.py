# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # What does a policy cost in loss?
#
# A policy that leaves a slow worker out finishes sooner, because it throws work away.
# Wall-clock alone cannot say whether that is a good bargain. The question is: which
# policy has the lower validation loss after the same *time*?
#
# Here the workers train a real language model, a small transformer that reads and
# predicts bytes of a novel by Jane Austen. Each worker takes inner steps with AdamW. An
# outer step averages the pseudo-gradients of the workers that took part, as in DiLoCo.

# %%
import pandas as pd

import testbed as tb

# %% [markdown]
# ## The scenario
#
# Four workers train for 24 rounds of 20 inner steps. An inner step takes 45 ms, and
# worker 3 takes two and a half times as long. The model is smaller than the library's, so
# that this notebook takes less than a minute.

# %%
scenario = tb.Scenario.library("charlm_straggler")
scenario.target_outer_steps = 24
scenario.train.model = tb.Model(layers=2, width=32, heads=2, context=32, batch=4)
scenario.real.parameters = None  # follows from the model
print(scenario.injects)
print(scenario.train.outer)

# %% [markdown]
# ## Train under both policies
#
# With `train=True` the simulator does not only count time. It also computes every inner
# step, quantises every pseudo-gradient to eight bits, and takes every outer step, for
# exactly those workers that the policy let take part. The computing is real. The times
# are those that the scenario says.

# %%
policies = ["baseline", "straggler"]
both = tb.compare(scenario, policies, world="sim", train=True)
both.plot("loss");

# %% [markdown]
# The horizontal axis is time, on the planned links. Both curves have 24 points, one a
# round. The straggler policy's rounds are shorter, so its curve ends at less than half
# the time. It lies below the baseline's from its second point on.
#
# ## What is the price?
#
# The price shows at equal *rounds*. The straggler policy soon evicts worker 3, and from
# then on an outer step averages three pseudo-gradients instead of four.

# %%
rounds = {p: both.sim_links[p].to_frame().set_index("round") for p in policies}
table = pd.DataFrame({p: rounds[p]["validation_loss"] for p in policies})
table["price"] = table["straggler"] - table["baseline"]
table.loc[[1, 2, 4, 8, 16, 24]].round(3)

# %% [markdown]
# The price is a few hundredths of a nat a byte, and it grows with the rounds. So if a
# budget is a number of rounds, waiting is better. If it is a number of hours, it is not.
#
# ## At equal time, tokens and rounds
#
# A claim that a policy is better needs a unit. Here is the straggler policy at its end,
# and the baseline after the same time, the same number of tokens, and the same number of
# rounds. The tokens of a round are those that its participants have processed.

# %%
model = scenario.train.model
of_a_worker = scenario.inner_steps * model.batch * model.context
for p in policies:
    rounds[p]["tokens"] = (rounds[p]["participants"] * of_a_worker).cumsum()

baseline, end = rounds["baseline"], rounds["straggler"].iloc[-1]
rows = {
    "straggler at its end": end,
    "baseline at equal time": baseline[baseline["end_us"] <= end["end_us"]].iloc[-1],
    "baseline at equal tokens": baseline[baseline["tokens"] <= end["tokens"]].iloc[-1],
    "baseline at equal rounds": baseline.iloc[-1],
}
table = pd.DataFrame(rows).T
table["seconds"] = table["end_us"] / 1e6
table["round"] = [row.name for row in rows.values()]
table[["validation_loss", "round", "seconds", "tokens"]].round(3).astype({"tokens": int})

# %% [markdown]
# The straggler policy is far ahead at equal time. It is ahead at equal tokens, too:
# three workers have taken more steps on them than four. It is behind at equal rounds
# only, and there the baseline has taken more than twice the time.
#
# ## And if worker 3 has data that nobody else has?
#
# Until now all workers drew from the whole novel, so the lost worker's data was not lost.
# With `split="contiguous"` each worker has a quarter of the novel for itself.

# %%
apart = scenario.copy()
apart.train.split = "contiguous"
own = tb.compare(apart, policies, world="sim", train=True)
own.plot("loss");

# %%
def price(comparison):
    loss = {p: comparison.sim_links[p].losses[-1][1] for p in policies}
    return loss["straggler"] - loss["baseline"]


print(f"price in the last round, all draw from the same text: {price(both):.3f}")
print(f"price in the last round, each has its own part:       {price(own):.3f}")

# %% [markdown]
# Now the price is higher. The model never sees a quarter of the book after the eviction,
# and that part would have helped with the rest. With a novel the parts are much alike.
# The more the workers' data differ, the more a worker that is left out matters.
#
# How far to trust this: the losses are exact for this model, this text and this seed, and
# they are the same on every machine. How large the price is for a model a million times
# larger they cannot say. That it must be measured at equal time, they can.
#
# ## What to try next
#
# - Repeat with other seeds before you believe a difference of a hundredth:
#   `tb.compare(..., repeat=5)`.
# - A gentler policy: `"straggler:sideline_limit=100"` never evicts, so worker 3 takes
#   part whenever it can. `"adaptive"` evicts nobody either.
# - `scenario.policy.staleness_weight = 0.5` adds what came too late to the worker's next
#   contribution, instead of throwing it away.
# - How slow must the worker be? Change the factor in `scenario.injects`.
# - `tb.compare(scenario, policies)` also trains on a real network, in real time. That
#   takes about a minute and a half.
# - A model of your own, in PyTorch or anything else: `docs/trainer.md`.
