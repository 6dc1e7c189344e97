"""Write src/testbed/_fields.py: dataclasses of the JSON schema of scenario files.

    python tools/fields.py          # writes it
    python tools/fields.py --check  # says whether it is fresh
"""

import json
import keyword
import re
import sys
import textwrap
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
SCHEMA = HERE.parent / "scenarios" / "schema" / "scenario.json"
OUT = HERE / "src" / "testbed" / "_fields.py"

# What a class is called here, where the schema's name is another package's business.
NAMES = {"Worker": "WorkerSpec", "Inject": "Inject", "Class": "WorkerClass"}

HEAD = '''"""The fields of a scenario, as its file has them. Made by tools/fields.py.

A field that is None is not given: it has its default, or no effect. Times are
whole microseconds, or text with a unit such as "30ms". Rates, sizes and durations
of the real network are always text with a unit, such as "100mbit", "256kb" and
"25ms".
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Dict, List, Optional, Union


class _Fields:
    def __repr__(self) -> str:
        given = ((f.name, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        return "%s(%s)" % (type(self).__name__, ", ".join("%s=%r" % (name, value) for name, value in given if value is not None))

'''


def class_name(ref: str) -> str:
    name = ref.rsplit("/", 1)[-1]
    return NAMES.get(name, name)


def type_of(schema: dict) -> str:
    if "$ref" in schema:
        return class_name(schema["$ref"])
    kind = schema["type"]
    if kind == ["array", "string"]:  # ranges of ids are for files
        return "List[int]"
    if isinstance(kind, list):
        return "Union[%s]" % ", ".join({"integer": "int", "number": "float", "string": "str"}[k] for k in kind)
    if kind == "array":
        return "List[%s]" % type_of(schema["items"])
    if kind == "object":
        more = schema.get("additionalProperties")
        return "Dict[str, %s]" % (type_of(more) if isinstance(more, dict) else "Any")
    return {"integer": "int", "number": "float", "string": "str", "boolean": "bool"}[kind]


def meaning(name: str, schema: dict) -> str:
    text = schema.get("description", "")
    text = text[0].lower() + text[1:] if text and not text.startswith(name) and text[1:2].islower() else text
    text = re.sub(r"^%s (is|are|says|has|holds) " % re.escape(name), lambda m: "" if m[1] in ("is", "are") else m[1] + " ", text)
    notes = []
    if "x-unit" in schema:
        notes.append(schema["x-unit"])
    if "enum" in schema:
        notes.append(" | ".join(map(str, schema["enum"])))
    if "examples" in schema and schema.get("x-unit") != "µs":  # of which the first lines have one
        notes.append("such as %s" % json.dumps(schema["examples"][0]))
    if "default" in schema:
        notes.append("default %s" % json.dumps(schema["default"]))
    if notes:
        text = (text.rstrip(".") + " " if text else "") + "(%s)" % ", ".join(notes)
    return text


def dataclass_of(name: str, schema: dict) -> str:
    required = schema.get("required", [])
    fields = schema["properties"]
    if name == "WorkerSpec":  # ids are for files: a program has loops
        fields = {f: s for f, s in fields.items() if f != "ids"}
        required = ["id"] + required
    lines = ["@dataclass(repr=False)", "class %s(_Fields):" % name]
    doc = [schema.get("description", name + ".").strip()]
    doc.append("")
    for f, s in fields.items():
        said = meaning(f, s)
        if said:
            doc.extend(textwrap.wrap("%s: %s" % (f, said), 92, subsequent_indent="    ", break_long_words=False))
    first = textwrap.wrap(doc[0], 90)
    body = first + doc[1:]
    text = "\n".join(("    " + line).rstrip() for line in body).strip().replace("\\", "\\\\")
    lines.append('    """%s\n    """' % text if "\n" in text else '    """%s"""' % text)
    lines.append("")
    attribute = {f: f + "_" if keyword.iskeyword(f) else f for f in fields}
    ordered = [f for f in fields if f in required] + [f for f in fields if f not in required]
    for f in ordered:
        kind = type_of(fields[f])
        if f in required:
            lines.append("    %s: %s" % (attribute[f], kind))
        elif f == "real" or f == "policy" or name == "Real" and f in ("links", "all_reduce") or name == "Links" and f == "default":
            lines.append("    %s: %s = field(default_factory=lambda: %s())" % (f, kind, kind))
        elif name == "ScenarioFields" and f == "injects":
            lines.append("    %s: %s = field(default_factory=lambda: [])" % (f, kind))
        else:
            lines.append("    %s: Optional[%s] = None" % (attribute[f], kind))
    return "\n".join(lines) + "\n"


def source() -> str:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    parts = [HEAD]
    defs = schema["$defs"]
    # The sections of policies have no name of their own.
    policies = defs["Policies"]["properties"]
    for name in list(policies):
        if "properties" in policies[name]:
            title = "".join(word.capitalize() for word in name.split("_")) + "Parameters"
            defs[title] = policies[name]
            policies[name] = {"$ref": "#/$defs/" + title, "description": "the parameters of the policy %s" % name}
    classes = []
    for name, d in defs.items():
        classes.append(dataclass_of(NAMES.get(name, name), d))
    classes.append(dataclass_of("ScenarioFields", schema))
    parts.append("\n" + "\n\n".join(classes))
    return "".join(parts)


def main() -> int:
    text = source()
    if "--check" in sys.argv:
        if OUT.read_text(encoding="utf-8") != text:
            print("src/testbed/_fields.py is not what the schema says; run python tools/fields.py", file=sys.stderr)
            return 1
        return 0
    OUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
