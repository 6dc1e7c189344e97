#!/usr/bin/env python3
"""Backup workers (Chen et al., arXiv:1604.00981): a round does not wait for the last b
members. The policy `backup`, written with the Python package."""

from typing import Annotated

import testbed as tb


class Backup(tb.Policy):
    b: Annotated[int, tb.Range(0, 0.5, of="members")] = 1

    def enough(self, round):
        needed = max(1, len(round.members) - self.b)
        return needed, round.arrived >= needed


Backup.main()
