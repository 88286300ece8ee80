"""A random graph under construction, in a form that all formats are written from.

Tensors are names. `shapes` has the sizes of each, those of records with BATCH in front (in a graph
that `moves` anywhere, in a `single` one nowhere); `kinds` its NumPy type. `weights` has the stored
constants. A tensor in `live` depends on the record.
"""

import copy
from dataclasses import dataclass, field

import numpy as np

BATCH = 7
"""The number of records while shapes are inferred. No other size is 7."""


class Unfit(Exception):
    """The random choice leads to no valid node. The generator draws again."""


class Refused(Exception):
    """The exporter refuses a model that it promises to take."""


@dataclass
class Node:
    op: str
    inputs: list
    outputs: list
    attrs: dict = field(default_factory=dict)
    domain: str = ""
    hits: list = field(default_factory=list)
    """(operation, attribute, rank, type) of what a node covers."""


class Graph:
    """Nodes in order, with everything that a judge and a writer need."""

    def __init__(self, random, version, kind):
        self.random, self.version, self.kind = random, version, kind
        self.nodes, self.inputs, self.outputs = [], [], []
        self.weights, self.shapes, self.kinds, self.live = {}, {}, {}, set()
        self.scales = {}
        """Scale and zero point of quantised tensors (TensorFlow Lite)."""
        self.records = None
        """The number of records that the model states; None for any number."""
        self.settings = {}
        """The JSON beside the model."""
        self.answer = "scores"
        """The answer: scores, the largest one's class, flags (above `threshold`), or one class."""
        self.option = None
        """The form of the answer that `-o` asks for, where it is neither scores nor class."""
        self.labels = None
        """Names of the classes, for the form `label`."""
        self.scores = None
        """The value that answers are made of, where it is not the outputs."""
        self.both = False
        """True if the answer has two classes' probabilities, and `scores` has the second one's."""
        self.whole = False
        """True if no smaller graph can be made of it."""
        self.extreme = False
        self.single = False
        """True if the model computes one record: no axis of its values is that of the records."""
        self.moves = False
        """True if the axis of the records need not be the first one."""
        self.mixers = set()
        """Nodes, of which a model with a first size above 1 needs one to be of one record."""
        self.masked = set()
        """Values with minus infinity in the place of what a softmax leaves out."""
        self.count = 0

    def name(self, stem):
        self.count += 1
        return f"{stem.lower()}_{self.count}"

    def hit(self, node, tags, rank, kind):
        """Notes what a node covers."""
        node.hits += [(node.op, tag, rank, kind) for tag in tags or ["-"]] + [
            (node.op, "type", "", kind)
        ]

    def copy(self):
        return copy.deepcopy(self)

    def input(self, dims, kind):
        name = self.name("in")
        self.inputs.append(name)
        self.shapes[name], self.kinds[name] = [BATCH, *dims], kind
        self.live.add(name)
        return name

    def weight(self, array):
        name = self.name("w")
        array = np.asarray(array)
        self.weights[name] = array
        self.shapes[name], self.kinds[name] = list(array.shape), array.dtype.name
        return name

    def chance(self, p):
        return self.random.random() < p

    def among(self, things):
        things = list(things)
        if not things:
            raise Unfit
        return things[self.random.integers(len(things))]

    def int(self, low, high):
        """A whole number from `low` to `high`."""
        return int(self.random.integers(low, high + 1))

    def axis(self, name):
        """The axis of the records; None in a model of one record, whose values have none."""
        if self.single:
            return None
        return self.shapes[name].index(BATCH) if self.moves else 0

    def axes(self, name):
        """All axes but that of the records."""
        return [i for i in range(len(self.shapes[name])) if i != self.axis(name)]

    def dims(self, name):
        """The sizes of all axes but that of the records."""
        return [self.shapes[name][i] for i in self.axes(name)]

    def plain(self, name):
        """The sizes of a constant that has a value's sizes, with 1 for the records."""
        return [d if i in self.axes(name) else 1 for i, d in enumerate(self.shapes[name])]

    def size(self, name):
        """Elements of a record of `name`."""
        return int(np.prod(self.dims(name)))

    def readers(self, name):
        return [n for n in self.nodes if name in n.inputs]

    def leaves(self):
        return [n for n in self.shapes if n in self.live and not self.readers(n)]

    def fits(self):
        """False if a model that computes one record would be taken for one of several."""
        if not self.single and not (self.moves and self.records):
            return True
        firsts = {self.shapes[n][0] if self.shapes[n] else 1 for n in self.inputs}
        if not self.single:
            return BATCH in firsts or 1 in firsts
        named = {o for n in self.nodes for o in n.outputs}
        return len(firsts) > 1 or 1 in firsts or bool(self.mixers & named)

    def cut(self, outputs):
        """The graph that computes `outputs` alone."""
        g = self.copy()
        g.outputs = list(outputs)
        wanted, kept = set(outputs), []
        for node in reversed(g.nodes):
            if wanted & set(node.outputs):
                kept.append(node)
                wanted |= set(node.inputs)
        g.nodes = kept[::-1]
        g.inputs = [i for i in g.inputs if i in wanted]
        g.weights = {n: w for n, w in g.weights.items() if n in wanted}
        return g
