#!/usr/bin/env python3
"""The policy straggler: close at median + k·MAD of recent arrivals, with a quorum;
evict who misses too often. It decides exactly as the policy of that name in Go."""
import json
import math
import sys

HELLO = {
    "version": 1,
    "name": "straggler",
    "answers": ["deadline", "enough", "late", "closed", "finishes_steps"],
    "parameters": [
        {"name": "quorum", "type": "float", "default": 0.75, "max": 1,
         "range": {"low": 0.3, "high": 1}},
        {"name": "k", "type": "float", "default": 3.0, "min": 0, "max": 1000,
         "range": {"low": 0.5, "high": 20, "log": True}},
        {"name": "window", "type": "int", "default": 32, "min": 1, "max": 1000000,
         "range": {"low": 4, "high": 256, "log": True}},
        {"name": "min_history", "type": "int", "default": 1, "min": 1},
        {"name": "min_slack", "type": "int", "default": 1, "min": 0, "max": 10**15,
         "range": {"low": 0.001, "high": 2, "log": True, "of": "round"}},
        {"name": "sideline_limit", "type": "int", "default": 2, "min": 0,
         "range": {"low": 0, "high": 8}},
        {"name": "finish_steps", "type": "bool", "default": False,
         "range": {"low": 0, "high": 1}},
    ],
}


def median(values):
    """The median, of an even number the floor of the mean of the middle two."""
    values = sorted(values)
    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) // 2


class Straggler:
    def __init__(self, reset):
        for name, value in reset["parameters"].items():
            setattr(self, name, value)
        if not self.quorum > 0:
            raise ValueError(f"quorum is {self.quorum}: it must lie in (0, 1]")
        self.floor = max(self.min_slack, reset["min_slack_us"])
        self.members = {}
        self.rounds = []  # offsets of arrivals
        self.closed_rounds = 0

    def heed(self, question):
        """Take note of what has changed of the members."""
        for id in question.get("gone", ()):
            del self.members[id]
        for member in question.get("members", ()):
            self.members[member["id"]] = member

    def deadline(self, question):
        now = question["round"]
        if now["arrived"] == 0 or "deadline" in now or now["overdue"] or self.closed_rounds < self.min_history:
            return {}
        offsets = [offset for round in self.rounds for offset in round]
        centre = median(offsets)
        mad = median([abs(offset - centre) for offset in offsets])
        at = now["first_us"] + max(self.floor, centre + int(self.k * mad))
        numbers = {"median_us": centre, "mad_us": mad, "k": self.k, "min_slack_us": self.floor, "samples": len(offsets)}
        return {"deadline": {"at_us": at, "numbers": numbers}}

    def enough(self, question):
        now = question["round"]
        needed = max(1, math.ceil(self.quorum * now["members"] - 1e-9))
        return {"enough": now["overdue"] and now["arrived"] >= needed, "needed": needed}

    def late(self, question):
        misses = question["member"].get("misses", 0)
        return {"evict": misses > self.sideline_limit, "limit": self.sideline_limit}

    def closed(self, question):
        first = question["round"].get("first_us")
        self.rounds.append([m["arrived_us"] - first for m in self.members.values() if "arrived_us" in m])
        self.closed_rounds += 1
        total = sum(map(len, self.rounds))
        while len(self.rounds) > 1 and total - len(self.rounds[0]) >= self.window:
            total -= len(self.rounds.pop(0))
        return {}

    def finishes_steps(self, question):
        return {"finishes_steps": self.finish_steps}


policy = None
for line in sys.stdin:
    question = json.loads(line)
    ask = question["ask"]
    if ask == "hello":
        answer = HELLO
    elif ask == "reset":
        try:
            policy, answer = Straggler(question), {}
        except ValueError as refusal:
            answer = {"error": str(refusal)}
    else:
        policy.heed(question)
        answer = getattr(policy, ask)(question)
    print(json.dumps({"n": question["n"], **answer}, separators=(",", ":")), flush=True)
