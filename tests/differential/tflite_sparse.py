"""Sparse constants as TensorFlow Lite stores them: which numbers, level by level."""

import numpy as np
from ai_edge_litert import schema_py_generated as schema

DENSE, SPARSE = 0, 1


class Storage:
    """How a constant is stored: the order of its axes, which of them are sparse, its blocks."""

    def __init__(self, g, array):
        rank = array.ndim
        self.block = [1] * rank
        self.blocks = []
        if rank == 2 and g.chance(0.4):
            self.blocks = [a for a in range(rank) if array.shape[a] % 2 == 0]
            self.block = [2 if a in self.blocks else 1 for a in range(rank)]
        # The axes of blocks are the last ones.
        self.order = [int(a) for a in g.random.permutation(rank)]
        self.sparse = [g.chance(0.6) for _ in range(rank)]
        self.order += range(rank, rank + len(self.blocks))
        self.sparse += [False] * len(self.blocks)
        self.narrow = g.chance(0.5)

    def written(self, array):
        """The description of the stored numbers, and these."""
        array = self.turned(array)
        parameters = schema.SparsityParametersT()
        parameters.traversalOrder, parameters.blockMap = self.order, self.blocks or None
        parameters.dimMetadata = []
        places = [()]
        for size, sparse in zip(array.shape, self.sparse):
            level = schema.DimensionMetadataT()
            level.format, level.denseSize = (SPARSE, 0) if sparse else (DENSE, size)
            taken = [
                [k for k in range(size) if not sparse or np.any(array[(*place, k)])]
                for place in places
            ]
            if sparse:
                segments = np.cumsum([0, *map(len, taken)])
                level.arraySegmentsType, level.arraySegments = self.indices(segments)
                level.arrayIndicesType, level.arrayIndices = self.indices(sum(taken, []))
            places = [(*place, k) for place, ks in zip(places, taken) for k in ks]
            parameters.dimMetadata.append(level)
        return parameters, np.array([array[place] for place in places], array.dtype)

    def turned(self, array):
        """The numbers with an axis for each level."""
        split = [n for d, b in zip(array.shape, self.block) for n in (d // b, b)]
        array = array.reshape(split)
        outer = [2 * a for a in range(len(self.block))]
        array = array.transpose(outer + [a + 1 for a in outer])
        kept = [len(self.block) + a for a in self.blocks]
        array = array.reshape(
            [d for i, d in enumerate(array.shape) if i < len(self.block) or i in kept]
        )
        return array.transpose(self.order)

    def indices(self, numbers):
        kind = "Uint8Vector" if self.narrow else "Int32Vector"
        vector = getattr(schema, kind + "T")()
        vector.values = np.asarray(numbers, np.uint8 if self.narrow else np.int32)
        return getattr(schema.SparseIndexVector, kind), vector
