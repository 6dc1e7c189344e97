#!/usr/bin/env python3
"""Close a fixed time after the round began, with a quorum. The policy `deadline`, written
with the Python package."""

import math
from typing import Annotated

import testbed as tb


def median(values):
    """Of an even number the mean of the middle two, rounded down."""
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2


class Deadline(tb.Policy):
    after: int = 0
    factor: Annotated[float, tb.Range(1, 4, log=True)] = 1.5
    quorum: Annotated[float, tb.Range(0.2, 1)] = 0.5

    def validate(self):
        if not 0 < self.quorum <= 1:
            return f"quorum is {self.quorum}: it must lie in (0, 1]"
        self.typical = 0  # what the median member needed for the first round
        return None

    def deadline(self, round):
        after = self.after or math.ceil(self.factor * self.typical)
        if round.deadline is not None or after == 0:
            return None
        return tb.Deadline(max(round.now, round.start + after), {"after_us": after})

    def enough(self, round):
        needed = tb.share(self.quorum, len(round.members))
        return needed, round.overdue and round.arrived >= needed

    def closed(self, round):
        if self.typical == 0:
            self.typical = max(1, median([m.arrived - round.start for m in round.members if m.arrived is not None]))


Deadline.main()
