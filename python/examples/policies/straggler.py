#!/usr/bin/env python3
"""Close at median + k·MAD of recent arrivals, with a quorum; evict who misses too often.
The policy `straggler`, written with the Python package."""

from typing import Annotated

import testbed as tb


def median(values):
    """Of an even number the mean of the middle two, rounded down."""
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2


class Straggler(tb.Policy):
    quorum: Annotated[float, tb.Range(0.3, 1)] = 0.75
    k: Annotated[float, tb.Range(0.5, 20, log=True)] = 3.0
    window: Annotated[int, tb.Range(4, 256, log=True)] = 32
    min_history: int = 1
    min_slack: Annotated[int, tb.Range(0.001, 2, log=True, of="round")] = 1
    sideline_limit: Annotated[int, tb.Range(0, 8)] = 2
    finish_steps: Annotated[bool, tb.Range(0, 1)] = False

    def validate(self):
        if not 0 < self.quorum <= 1:
            return f"quorum is {self.quorum}: it must lie in (0, 1]"
        self.history = []  # a list of arrival offsets for each closed round
        self.rounds = 0
        return None

    def deadline(self, round):
        if round.arrived == 0 or round.deadline is not None or round.overdue or self.rounds < self.min_history:
            return None
        offsets = [o for of_round in self.history for o in of_round]
        centre = median(offsets)
        mad = median([abs(o - centre) for o in offsets])
        slack = max(self.min_slack, round.min_slack)
        numbers = {"median_us": centre, "mad_us": mad, "k": self.k, "min_slack_us": slack, "samples": len(offsets)}
        return tb.Deadline(round.first + max(slack, centre + int(self.k * mad)), numbers)

    def enough(self, round):
        needed = tb.share(self.quorum, len(round.members))
        return needed, round.overdue and round.arrived >= needed

    def late(self, round, member):
        return self.sideline_limit, member.misses > self.sideline_limit

    def closed(self, round):
        self.history.append([m.arrived - round.first for m in round.members if m.arrived is not None])
        self.rounds += 1
        # Rounds are kept or forgotten whole, because the last offsets of one are its slowest.
        total = sum(map(len, self.history))
        while len(self.history) > 1 and total - len(self.history[0]) >= self.window:
            total -= len(self.history.pop(0))

    def finishes_steps(self):
        return self.finish_steps


Straggler.main()
