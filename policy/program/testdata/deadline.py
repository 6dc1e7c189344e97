#!/usr/bin/env python3
"""The policy deadline: close a fixed time after the round began, with a quorum. It
decides exactly as the policy of that name in Go."""
import json
import math
import sys

HELLO = {
    "version": 1,
    "name": "deadline",
    "answers": ["deadline", "enough", "closed"],
    "parameters": [
        {"name": "after", "type": "int", "default": 0, "min": 0, "max": 10**15},
        {"name": "factor", "type": "float", "default": 1.5, "min": 1, "max": 1000,
         "range": {"low": 1, "high": 4, "log": True}},
        {"name": "quorum", "type": "float", "default": 0.5, "max": 1,
         "range": {"low": 0.2, "high": 1}},
    ],
}


def median(values):
    """The median, of an even number the floor of the mean of the middle two."""
    values = sorted(values)
    middle = len(values) // 2
    if len(values) % 2:
        return values[middle]
    return (values[middle - 1] + values[middle]) // 2


class Deadline:
    def __init__(self, reset):
        for name, value in reset["parameters"].items():
            setattr(self, name, value)
        if not self.quorum > 0:
            raise ValueError(f"quorum is {self.quorum}: it must lie in (0, 1]")
        self.members = {}
        self.first = 0  # what the median member needed for the first round; 0: not known

    def heed(self, question):
        """Take note of what has changed of the members."""
        for id in question.get("gone", ()):
            del self.members[id]
        for member in question.get("members", ()):
            self.members[member["id"]] = member

    def deadline(self, question):
        now = question["round"]
        after = self.after or math.ceil(self.factor * self.first)
        if "deadline" in now or after == 0:
            return {}
        return {"deadline": {"at_us": max(now["now_us"], now["start_us"] + after), "numbers": {"after_us": after}}}

    def enough(self, question):
        now = question["round"]
        needed = max(1, math.ceil(self.quorum * now["members"] - 1e-9))
        return {"enough": now["overdue"] and now["arrived"] >= needed, "needed": needed}

    def closed(self, question):
        if self.first == 0:
            start = question["round"]["start_us"]
            self.first = max(1, median([m["arrived_us"] - start for m in self.members.values() if "arrived_us" in m]))
        return {}


policy = None
for line in sys.stdin:
    question = json.loads(line)
    ask = question["ask"]
    if ask == "hello":
        answer = HELLO
    elif ask == "reset":
        try:
            policy, answer = Deadline(question), {}
        except ValueError as refusal:
            answer = {"error": str(refusal)}
    else:
        policy.heed(question)
        answer = getattr(policy, ask)(question)
    print(json.dumps({"n": question["n"], **answer}, separators=(",", ":")), flush=True)
