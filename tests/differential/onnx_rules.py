"""Rules for operations that look for elements, take them from places, attend, or read signals.

Each adds a node of what docs/ONNX.md promises, as those in onnx_graphs.py do.
"""

import ml_dtypes
import numpy as np

from graph import Unfit
from onnx_constants import floats, node, normal, quarters, reduced, stored, typed, whole
from onnx_operands import code, inner, partner, positive, sharp


def bounded(g, x, most=0.9):
    """Numbers between -most and most."""
    return node(g, "Mul", node(g, "Tanh", x), typed(g, np.float32(most)))


def angle(op):
    def rule(g):
        x = g.operand()
        if op in ("Asin", "Acos", "Atanh"):
            x = bounded(g, x)
        elif op == "Acosh":
            x = node(g, "Add", positive(g, x), typed(g, np.float32(1)))
        elif op not in ("Atan", "Asinh") and g.chance(0.8):
            x = node(g, "Tanh", x)
        node(g, op, x)

    return rule


def extreme(op):
    """Indices along an axis, which mostly become floats."""

    def rule(g):
        x = sharp(g, ranks=(2, 3, 4))
        a, written = inner(g, x)
        if g.shapes[x][a] in (1, g.size(x)):
            raise Unfit
        attrs = {"axis": written}
        if g.chance(0.6):
            attrs["keepdims"] = g.int(0, 1)
        if g.version >= 12 and g.chance(0.5):
            attrs["select_last_index"] = g.int(0, 1)
        y = node(g, op, x, **attrs)
        if g.chance(0.7):
            node(g, "Cast", y, to=code(g.kind))

    return rule


def hardmax(g):
    early = g.version < 13
    x = sharp(g, ranks=(2, 3, 4), first=early and not g.single)
    if g.axis(x) == len(g.shapes[x]) - 1 or early and g.single and g.shapes[x][0] > 1:
        raise Unfit
    if early:
        return node(g, "Hardmax", x, **g.among([{}, {"axis": 1}]))
    _, a = inner(g, x)
    node(g, "Hardmax", x, **({} if g.chance(0.3) else {"axis": a}))


def top(g):
    """The largest or smallest elements; their indices are read by a cast, or by a gather."""
    x = sharp(g, ranks=(1, 2, 3, 4)) if g.single else sharp(g, ranks=(2, 3, 4))
    a, written = inner(g, x)
    if g.moves and a < g.axis(x):
        raise Unfit
    attrs = {}
    if a != len(g.shapes[x]) - 1 or g.chance(0.6):
        attrs["axis"] = written
    k = g.int(1, g.shapes[x][a])
    if g.version >= 11:
        if g.chance(0.7):
            attrs["largest"] = g.int(0, 1)
        if g.chance(0.3):
            attrs["sorted"] = 1
    if g.version < 10:
        at = g.node("TopK", [x], attrs | {"k": k}, 2)[1]
    else:
        at = g.node("TopK", [x, whole(g, [k])], attrs, 2)[1]
    if g.version >= 11 and g.chance(0.4):
        # Elements of another value at these places.
        y = partner(g, x)
        if g.shapes[y] == g.shapes[x] and g.kinds[y] == g.kind:
            return g.node("GatherElements", [y, at], {"axis": written}, tags=["computed indices"])
    if g.chance(0.7):
        node(g, "Cast", at, to=code(g.kind))


def indices(g, shape, axis, most, different=False):
    """Indices into an axis of `most` elements, none of them twice along the axis if `different`."""
    if different:
        order = g.random.random([most if i == axis else n for i, n in enumerate(shape)])
        at = np.argsort(order, axis).take(range(shape[axis]), axis)
    else:
        at = g.random.integers(0, most, shape)
    if g.chance(0.3):
        at = np.where(g.random.random(shape) < 0.5, at - most, at)
    return stored(g, at.astype(g.among(["int64", "int32"])))


def single(g):
    if not g.single:
        raise Unfit


def gather_elements(g):
    single(g)
    x = g.operand((1, 2, 3, 4), any_kind=True)
    a, written = inner(g, x)
    shape = [g.int(1, 6) if i == a else g.int(1, n) for i, n in enumerate(g.shapes[x])]
    at = indices(g, shape, a, g.shapes[x][a])
    g.node("GatherElements", [x, at], {"axis": written}, tags=["constant indices"])


def scatter_elements(g):
    single(g)
    x = g.operand((1, 2, 3, 4))
    a, written = inner(g, x)
    attrs = {"axis": written}
    if g.version >= 16 and g.chance(0.3):
        attrs["reduction"] = "none"
    shape = [g.int(1, n) for n in g.shapes[x]]
    way = g.among(["constant updates", "computed updates", "constant data"])
    if way == "constant data":
        data, updates = floats(g, [n + g.int(0, 2) for n in g.shapes[x]]), x
        shape = g.shapes[x]
    elif way == "computed updates":
        data, updates = x, node(g, g.among(["Tanh", "Neg"]), x)
        shape = g.shapes[x]
    else:
        data, updates = x, floats(g, shape)
    at = indices(g, shape, a, g.shapes[data][a], True)
    op = "ScatterElements" if g.version >= 11 else "Scatter"
    g.node(op, [data, at, updates], attrs, tags=[way])


def places(g, sizes, count):
    """Different places in an array of these sizes."""
    most = int(np.prod(sizes))
    at = np.stack(np.unravel_index(g.random.permutation(most)[:count], sizes), -1)
    if g.chance(0.3):
        at = np.where(g.random.random(at.shape) < 0.5, at - np.array(sizes), at)
    return at.astype(np.int64)


def gather_blocks(g):
    single(g)
    x = g.operand((1, 2, 3, 4), any_kind=True)
    shape = g.shapes[x]
    batch = g.int(0, min(2, len(shape) - 1)) if g.version >= 12 and g.chance(0.4) else 0
    depth = g.int(1, len(shape) - batch)
    front, sizes = shape[:batch], shape[batch : batch + depth]
    count = g.int(1, 4)
    each = [g.random.integers(0, n, [*front, count]) for n in sizes]
    at = np.stack(each, -1).astype(np.int64)
    if g.chance(0.3):
        at = np.where(g.random.random(at.shape) < 0.5, at - np.array(sizes), at)
    attrs = {"batch_dims": batch} if batch else {}
    g.node("GatherND", [x, stored(g, at)], attrs, tags=[f"depth {depth}"])


def scatter_blocks(g):
    single(g)
    x = g.operand((1, 2, 3, 4))
    shape = g.shapes[x]
    depth = g.int(1, len(shape))
    at = places(g, shape[:depth], g.int(1, 4))
    attrs = {"reduction": "none"} if g.version >= 16 and g.chance(0.3) else {}
    sizes = [len(at), *shape[depth:]]
    if g.chance(0.4):
        # The record's numbers go into a constant.
        front = [len(at) + g.int(0, 2)]
        at = places(g, front, shape[0])[: shape[0]] if front[0] >= shape[0] else None
        if at is None:
            raise Unfit
        data = floats(g, [*front, *shape[1:]])
        return g.node("ScatterND", [data, stored(g, at), x], attrs, tags=["constant data"])
    inputs = [x, stored(g, at), floats(g, sizes)]
    g.node("ScatterND", inputs, attrs, tags=[f"depth {depth}"])


def norm(g):
    # A norm of 0 has no answer.
    x = positive(g, g.operand((2, 3, 4)))
    if g.chance(0.5):
        x = node(g, "Sub", x, typed(g, np.float32(0.4)))
    a, written = inner(g, x)
    attrs = {"p": g.int(1, 2)} if g.chance(0.7) else {}
    if a != len(g.shapes[x]) - 1 or g.chance(0.5):
        attrs["axis"] = written if g.version >= 11 else a
    node(g, "LpNormalization", x, **attrs)


def product(g):
    x = g.operand((2, 3, 4))
    x = positive(g, x) if g.chance(0.3) else x
    a, written = inner(g, x)
    if g.shapes[x][a] > 6:
        raise Unfit
    attrs = {} if g.chance(0.4) else {"keepdims": g.int(0, 1)}
    reduced(g, "ReduceProd", x, [int(written)], **attrs)
    g.nodes[-1].hits.append(("ReduceProd", "axes", len(g.shapes[x]), g.kinds[x]))


def remainder(g):
    if g.version >= 13 and g.chance(0.3):
        # Integers of 8 bits neither wrap nor lose digits.
        ints = sorted(n for n in g.live if g.kinds[n] in ("int8", "uint8") and n not in g.sizes)
        x = g.among(ints)
        c = np.array(g.among([3, 5, 11] + [-4] * (g.kinds[x] == "int8")), g.kinds[x])
        return g.node("Mod", [x, stored(g, c)], {"fmod": g.int(0, 1)}, tags=["integers"])
    x = sharp(g)
    c = typed(g, np.float32(g.among([0.5, 0.75, -1.25, 2.0])))
    g.node("Mod", [x, c], {"fmod": 1})


def cast_like(g):
    if g.chance(0.3):
        x = sharp(g)
        like = stored(g, np.array([1], g.among(["int32", "int64"])))
        return g.node("CastLike", [x, like], tags=["to integers"])
    x = g.operand(any_kind=True, truth=True)
    same = sorted(n for n in g.live if g.kinds[n] == g.kind and n not in g.sizes)
    like = g.among(same) if same and g.chance(0.4) else typed(g, normal(g, [2]))
    g.node("CastLike", [x, like], tags=["to floats"])


def compress(g):
    if g.single and g.chance(0.3):
        x = g.operand((1, 2, 3))
        n = g.int(1, g.size(x))
        pick = g.random.random(n) < 0.6
        pick[g.int(0, n - 1)] = True
        return g.node(
            "Compress", [x, stored(g, pick)], shape=[int(pick.sum())], tags=["all elements"]
        )
    x = g.operand((2, 3, 4))
    a, written = inner(g, x)
    n = g.int(1, g.shapes[x][a])
    pick = g.random.random(n) < 0.6
    pick[g.int(0, n - 1)] = True
    shape = [int(pick.sum()) if i == a else d for i, d in enumerate(g.shapes[x])]
    g.node("Compress", [x, stored(g, pick)], {"axis": written}, shape=shape)


def centred(g):
    x = g.operand((1, 2, 3, 4))
    every = list(range(len(g.shapes[x])))
    axes = [a for a in g.axes(x) if g.chance(0.7)] or g.axes(x)[-1:]
    if not axes:
        raise Unfit
    if g.single and g.chance(0.3):
        return node(
            g, "CenterCropPad", x, whole(g, [max(1, n + g.int(-3, 3)) for n in g.shapes[x]])
        )
    sizes = [max(1, g.shapes[x][a] + g.int(-3, 3)) for a in axes]
    written = [int(a - len(every) * g.int(0, 1)) for a in axes]
    node(g, "CenterCropPad", x, whole(g, sizes), axes=written)


def einsum(g):
    single(g)
    x = g.operand((2, 3, 4))
    rank = len(g.shapes[x])
    letters = "abcdefg"[:rank]
    kept = [letter for letter in letters if g.chance(0.7)] or [letters[0]]
    g.random.shuffle(kept)
    sizes = dict(zip(letters, g.shapes[x]))
    if g.chance(0.5):
        attrs = {"equation": f"{letters}->{''.join(kept)}"}
        shape = [sizes[letter] for letter in kept]
        return g.node("Einsum", [x], attrs, shape=shape, tags=["one operand"])
    a = g.int(0, rank - 1)
    made = g.int(1, 6)
    w = floats(g, [g.shapes[x][a], made], 1 / np.sqrt(g.shapes[x][a]))
    result = letters.replace(letters[a], "z")
    shape = [made if i == a else n for i, n in enumerate(g.shapes[x])]
    equation = f"{letters},{letters[a]}z->{result}"
    g.node("Einsum", [x, w], {"equation": equation}, shape=shape, tags=["with a constant"])


def power(g):
    """Any exponents of a base above 0, also computed ones."""
    x = positive(g, g.operand())
    if g.chance(0.5):
        y = bounded(g, partner(g, x), g.among([1, 2]))
        return g.node("Pow", [x, y], tags=["computed exponent"])
    if g.chance(0.4):
        y = bounded(g, x, 2)
        c = floats(g, g.among([[], [1]]), positive=True)
        return g.node("Pow", [c, y], tags=["computed exponent of a constant"])
    e = g.random.uniform(-2, 3, g.among([[], [1]])).astype(np.float32)
    g.node("Pow", [x, typed(g, e)], tags=["any exponent"])


def computed_norm(g):
    """`LayerNormalization` with a factor and a summand that are computed from the record."""
    single(g)
    x = g.operand((2, 3, 4))
    rank = len(g.shapes[x])
    if g.shapes[x][-1] < 2:
        raise Unfit
    first = reduced(g, "ReduceMean", x, list(range(rank - 1)), keepdims=0)
    scale = node(g, g.among(["Sigmoid", "Tanh"]), first)
    inputs = [x, scale] + ([node(g, "Neg", first)] if g.chance(0.6) else [])
    attrs = {"epsilon": g.among([1e-3, 0.1])}
    g.node("LayerNormalization", inputs, attrs, tags=["computed scale"])


def masked_softmax(g):
    """Minus infinity in front of a softmax, of which each row keeps one finite element."""
    x = g.operand((2, 3, 4))
    a, written = inner(g, x)
    low = g.int(0, a)
    shape = [1 if i != a and g.chance(0.3) else n for i, n in enumerate(g.plain(x))][low:]
    keep = g.random.random(shape) < 0.6
    np.moveaxis(keep, a - low, 0)[g.int(0, g.shapes[x][a] - 1)] = True
    if g.chance(0.5):
        numbers = quarters(g, shape) if g.chance(0.5) else np.zeros(shape, np.float32)
        mask = typed_plain(g, np.where(keep, numbers, -np.inf))
        pair = [x, mask] if g.chance(0.5) else [mask, x]
        y = g.node("Add", pair, tags=["minus infinity"])[0]
    else:
        low_number = typed_plain(g, np.full(g.among([[], [1]]), -np.inf))
        turned = g.chance(0.5)
        c = stored(g, ~keep if turned else keep)
        pair = [low_number, x] if turned else [x, low_number]
        y = g.node("Where", [c, *pair], tags=["minus infinity"])[0]
    g.masked = g.masked | {y}
    node(g, "Softmax", y, axis=written)


def typed_plain(g, array):
    """An array in the graph's type, without a detour."""
    kind = ml_dtypes.bfloat16 if g.kind == "bfloat16" else g.kind
    return g.weight(array.astype(np.float32).astype(kind))


def quantise_channels(g):
    """Rounds to the steps of a scale for each index along an axis, and back."""
    if g.kind != "float32":
        raise Unfit
    x = sharp(g, ranks=(2, 3, 4))
    a, written = inner(g, x)
    n = g.shapes[x][a]
    kind = g.among(["int8", "uint8"])
    scale = stored(g, g.random.choice([0.125, 0.03125, 0.0625], n).astype(np.float32))
    low, high = (100, 150) if kind == "uint8" else (-20, 20)
    zero = stored(g, g.random.integers(low, high, n).astype(kind))
    attrs = {"axis": written} if a != 1 or g.chance(0.6) else {}
    y = node(g, "QuantizeLinear", x, scale, zero, **attrs)
    g.nodes[-1].hits.append(("QuantizeLinear", "scale of each channel", len(g.shapes[x]), g.kind))
    node(g, "DequantizeLinear", y, scale, zero, **attrs)


def fourier(g):
    x = g.operand((3, 4), first=True, fits=lambda d: d[-1] <= 2) if g.chance(0.3) else None
    if x is None:
        x = g.operand((2, 3))
        if g.axis(x) == len(g.shapes[x]) - 1 and not g.single:
            raise Unfit
        axes = [len(g.shapes[x])]
        x = node(g, "Unsqueeze", x, whole(g, axes))
    real = g.shapes[x][-1] == 1
    rank = len(g.shapes[x])
    a = g.among([i for i in g.axes(x) if i != rank - 1])
    way = g.among([{}, {"inverse": 1}] + [{"onesided": 1}] * real)
    n = g.shapes[x][a]
    length = stored(g, np.array(max(1, n + g.int(-2, 3)), np.int64)) if g.chance(0.4) else ""
    tags = ["a length"] if length else ["no length"]
    if g.version < 20:
        return g.node("DFT", [x, length] if length else [x], way | {"axis": a}, tags=tags)
    axis = stored(g, np.array(g.among([a, a - rank]), np.int64))
    g.node("DFT", [x, length, axis], way, tags=[*tags, *way])


def short_time(g):
    """Spectra of the frames of a signal."""
    x = g.operand((2,), first=True)
    n = g.shapes[x][1]
    if n < 4:
        raise Unfit
    signal = node(g, "Unsqueeze", x, whole(g, [2]))
    length = g.int(2, min(n, 8))
    every = g.int(1, 4)
    step = stored(g, np.array(every, np.int64))
    frame = stored(g, np.array(length, np.int64))
    attrs = {} if g.chance(0.5) else {"onesided": g.int(0, 1)}
    window = typed(g, g.random.uniform(0.2, 1, length).astype(np.float32))
    forms = [[signal, step, window], [signal, step, window, frame], [signal, step, "", frame]]
    inputs = g.among(forms)
    bins = length // 2 + 1 if attrs.get("onesided", 1) else length
    shape = [g.shapes[x][0], (n - length) // every + 1, bins, 2]
    g.node("STFT", inputs, attrs, tags=["a window" if inputs[2] else "no window"], shape=shape)


def rotary(g):
    """Pairs of numbers turned by the angle of their place, from constants or computed ones."""
    x = g.operand((4,), first=True, fits=lambda d: d[2] % 2 == 0)
    front, heads, count, size = g.shapes[x]
    attrs = {"interleaved": g.int(0, 1)} if g.chance(0.6) else {}
    part = size
    if g.single:
        if size > 2 and g.chance(0.3):
            part = attrs["rotary_embedding_dim"] = 2
            attrs["num_heads"] = heads
        ids = g.chance(0.4)
        shape = [count + 2, part // 2] if ids else [front, count, part // 2]
        turns = g.random.uniform(-3, 3, shape)
        caches = [typed(g, f(turns).astype(np.float32)) for f in (np.cos, np.sin)]
        if ids:
            caches.append(stored(g, g.random.integers(0, count + 2, [front, count])))
        if g.chance(0.4):
            turned = node(g, "Transpose", x, perm=[0, 2, 1, 3])
            x = node(g, "Reshape", turned, whole(g, [front, count, heads * size]))
            attrs["num_heads"] = heads
        return g.node("RotaryEmbedding", [x, *caches], attrs, tags=["constants"])
    mean = reduced(g, "ReduceMean", x, [1], keepdims=0)
    half = node(g, "Slice", mean, whole(g, [0]), whole(g, [part // 2]), whole(g, [2]))
    caches = [node(g, op, half) for op in ("Cos", "Sin")]
    g.node("RotaryEmbedding", [x, *caches], attrs, tags=["computed"])


def projected(g, x, columns):
    k = g.shapes[x][-1]
    return node(g, "MatMul", x, floats(g, [k, columns], 1 / np.sqrt(k)))


def attention(g):
    x = g.operand((3,), first=True)
    _, count, _ = g.shapes[x]
    y = x
    if g.chance(0.3):
        same = [n for n in sorted(g.live) if len(g.shapes[n]) == 3 and g.kinds[n] == g.kind]
        y = g.among([n for n in same if g.shapes[n][:1] == g.shapes[x][:1] and n not in g.sizes])
    other = g.shapes[y][1]
    heads = g.int(1, 3)
    groups = g.among([d for d in range(1, heads + 1) if heads % d == 0])
    size, width = g.int(1, 4), g.int(1, 4)
    parts = [
        projected(g, of, n * s)
        for of, n, s in ((x, heads, size), (y, groups, size), (y, groups, width))
    ]
    attrs = {"is_causal": 1} if count <= other and g.chance(0.3) else {}
    if g.chance(0.3):
        attrs["scale"] = g.among([0.3, 1.0])
    tags = ["groups" if groups < heads else "heads"]
    if g.chance(0.5):
        attrs |= {"q_num_heads": heads, "kv_num_heads": groups}
    else:
        tags.append("four axes")
        for i, (n, p) in enumerate(zip((heads, groups, groups), list(parts))):
            front, places_, columns = g.shapes[p]
            target = whole(g, [0, places_, n, columns // n])
            split = node(g, "Reshape", p, target)
            parts[i] = node(g, "Transpose", split, perm=[0, 2, 1, 3])
    mask = g.among(["no mask", "no mask", "float mask", "boolean mask"])
    shape = [count, other] if g.chance(0.6) else [1, g.among([1, heads]), count, other]
    keep = g.random.random(shape) < 0.7
    # Each row keeps its first element, which a causal mask keeps too.
    keep[..., 0] = True
    if mask == "boolean mask":
        parts.append(stored(g, keep))
    elif mask == "float mask":
        low = -np.inf if g.chance(0.4) else -2.0
        parts.append(typed_plain(g, np.where(keep, quarters(g, shape), low)))
    elif "is_causal" not in attrs and g.chance(0.3):
        attrs["softcap"] = 2.0
    g.node("Attention", parts, attrs, tags=[*tags, mask])


def lp_pool(window):
    """The rule of `LpPool`, with a function that draws windows."""

    def rule(g):
        x = g.operand((3, 4), first=True)
        attrs = {}
        attrs["kernel_shape"] = window(g, g.shapes[x][2:], attrs, True, g.version >= 18)
        if g.chance(0.7):
            attrs["p"] = g.int(1, 3)
        if attrs.get("p") == 3:
            x = positive(g, x)
        if g.version >= 18 and g.chance(0.3):
            attrs["ceil_mode"] = 0
        node(g, "LpPool", x, **attrs)

    return rule


RULES = {
    **{op: angle(op) for op in "Tan Sinh Cosh Asinh Acosh Atanh Atan Asin Acos".split()},
    "ArgMax": extreme("ArgMax"),
    "ArgMin": extreme("ArgMin"),
    "Attention": attention,
    "Attention again": attention,
    "CastLike": cast_like,
    "CenterCropPad": centred,
    "Compress": compress,
    "DFT": fourier,
    "Einsum": einsum,
    "GatherElements": gather_elements,
    "GatherND": gather_blocks,
    "Hardmax": hardmax,
    "LayerNormalization with computed scale": computed_norm,
    "LpNormalization": norm,
    "Mod": remainder,
    "Pow of any exponent": power,
    "QuantizeLinear of channels": quantise_channels,
    "ReduceProd": product,
    "RotaryEmbedding": rotary,
    "RotaryEmbedding again": rotary,
    "STFT": short_time,
    "Scatter before ScatterElements": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_blocks,
    "Softmax of a mask": masked_softmax,
    "Softmax of a mask again": masked_softmax,
    "TopK": top,
}
LEAST = {
    **dict.fromkeys("Sinh Cosh Asinh Acosh Atanh Compress Scatter".split(), 9),
    **dict.fromkeys(["Attention", "Attention again"], 23),
    **dict.fromkeys(["RotaryEmbedding", "RotaryEmbedding again"], 23),
    **dict.fromkeys(["DFT", "STFT", "LayerNormalization with computed scale"], 17),
    **dict.fromkeys(["Softmax of a mask", "Softmax of a mask again"], 13),
    **dict.fromkeys(["GatherElements", "GatherND", "ScatterElements", "ScatterND"], 11),
    "Scatter before ScatterElements": 9,
    "QuantizeLinear of channels": 13,
    "CastLike": 15,
    "CenterCropPad": 18,
    "Einsum": 12,
    "Mod": 10,
    "Pow of any exponent": 7,
}
"""The first set of operations that the first one lacks."""

TAGS = {
    "ArgMax": ("axis|keepdims|select_last_index", (2, 3, 4)),
    "ArgMin": ("axis|keepdims|select_last_index", (2, 3, 4)),
    "Attention": ("heads|groups|no mask|float mask|boolean mask|softcap|is_causal|scale", ()),
    "CastLike": ("to floats|to integers", (2, 3, 4)),
    "CenterCropPad": ("axes", (2, 3, 4)),
    "Compress": ("axis", (2, 3, 4)),
    "DFT": ("a length|no length|inverse|onesided", (3, 4)),
    "Einsum": ("one operand|with a constant", (2, 3, 4)),
    "GatherElements": ("constant indices|computed indices", (2, 3)),
    "GatherND": ("depth 1|depth 2", (2, 3, 4)),
    "Hardmax": ("axis", (2, 3, 4)),
    "LayerNormalization": ("computed scale", (2, 3, 4)),
    "LpNormalization": ("axis|p", (2, 3, 4)),
    "LpPool": ("kernel_shape|p|strides|pads", (3, 4)),
    "Mod": ("fmod", (2, 3, 4)),
    "Pow": ("any exponent|computed exponent|computed exponent of a constant", (2, 3, 4)),
    "QuantizeLinear": ("scale of each channel", (2, 3)),
    "ReduceProd": ("axes", (2, 3, 4)),
    "RotaryEmbedding": ("constants|computed|interleaved|num_heads", ()),
    "STFT": ("a window|no window", (3,)),
    "ScatterElements": ("constant updates|computed updates|constant data", (2, 3)),
    "ScatterND": ("depth 1|constant data", (2, 3)),
    "TopK": ("axis|largest", (2, 3, 4)),
}
"""What graphs should have of each operation: its tags, and the ranks of what it reads."""


def expected():
    """The entries of the table that must not be empty."""
    found = []
    for op, (tags, ranks) in TAGS.items():
        if op in ("Attention", "RotaryEmbedding"):
            four = {"heads", "groups", "constants", "computed", "interleaved"}
            each = [(tag, 4 if tag in four else 3) for tag in tags.split("|")]
        else:
            each = [(t, r) for t in tags.split("|") for r in ranks]
        found += [(op, tag, rank, "float32") for tag, rank in each]
    for op in "Add Where".split():
        found += [(op, "minus infinity", rank, "float32") for rank in (2, 3, 4)]
    return found
