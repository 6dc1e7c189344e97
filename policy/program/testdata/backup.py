#!/usr/bin/env python3
"""The policy backup: a round does not wait for the last b members."""
import json
import sys

HELLO = {
    "version": 1,
    "name": "backup",
    "answers": ["enough"],
    "parameters": [
        {"name": "b", "type": "int", "default": 1, "min": 0,
         "range": {"low": 0, "high": 0.5, "of": "members"}},
    ],
}

b = 1
for line in sys.stdin:
    question = json.loads(line)
    answer = {"n": question["n"]}
    if question["ask"] == "hello":
        answer.update(HELLO)
    elif question["ask"] == "reset":
        b = question["parameters"]["b"]
    elif question["ask"] == "enough":
        now = question["round"]
        needed = max(1, now["members"] - b)
        answer.update(enough=now["arrived"] >= needed, needed=needed)
    print(json.dumps(answer, separators=(",", ":")), flush=True)
