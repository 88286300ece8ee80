#!/usr/bin/env python3
"""Checks JSON files of the sources against docs/schemas, and that the schemas refuse mistakes.

usage: tests/schemas.py      (needs jsonschema: tests/run installs it)
"""

import copy
import json
from pathlib import Path

from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parent.parent
FILES = {
    "network": ["model/*/network.json", "tests/fixtures/**/network*.json", "tests/onnx/*.json"],
    "matrix": ["model/*/*_[wb].json"],
    "library": ["kernels/library.json"],
    "plan": [],
}
PLAN = {
    "format": 1,
    "name": "own",
    "engine": "opencl",
    "batch": 64,
    "about": "",
    "kernels": ["affine_packed_4x4"],
    "few": {"records": 4, "kernels": ["affine_few"]},
    "workGroups": {"affine_packed_4x4": [4, 16]},
    "layouts": [{"node": "layers[0]", "role": "weights", "layout": "R"}],
    "library": "",
    "medianUs": 1.5,
}


OF_NAMES = ("defines", "sizes", "workGroups")
"""Objects whose keys are names."""


def objects(value):
    """The objects of a value that have keys of their own."""
    if isinstance(value, dict):
        yield value
    members = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, member in members:
        if key not in OF_NAMES:
            yield from objects(member)


def mistakes(value):
    """The value with one mistake: another key in one of its first objects, or another type."""
    for number in range(min(len(list(objects(value))), 20)):
        changed = copy.deepcopy(value)
        list(objects(changed))[number]["unknown key"] = 1
        yield changed
    for key in value:
        yield value | {key: None}


def main():
    for name, patterns in FILES.items():
        schema = json.loads((ROOT / f"docs/schemas/{name}.json").read_text("utf-8"))
        Draft202012Validator.check_schema(schema)
        validator = Draft202012Validator(schema)
        files = [file for pattern in patterns for file in sorted(ROOT.glob(pattern))]
        values = [json.loads(file.read_text("utf-8")) for file in files] or [PLAN]
        refused = 0
        for value in values:
            validator.validate(value)
            for changed in mistakes(value):
                assert not validator.is_valid(changed), (name, changed)
                refused += 1
        print(f"docs/schemas/{name}.json: {len(values)} files fit, {refused} mistakes do not")


if __name__ == "__main__":
    main()
