"""The formats, by name."""

import importlib


def module(name):
    return importlib.import_module(f"{name}_graphs")


def of(g):
    return module(g.format)
