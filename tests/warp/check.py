#!/usr/bin/env python3
"""Checks kernels that use instructions of a warp (kernels/common/warp.cl) on a CPU: their sources,
with instructions.cl in place of that file, are compiled by Clang and run by warp.c. A GPU computes
what this does; how fast, and whether its driver compiles them, it alone can tell.

usage: tests/warp/check.py [KERNEL...]

Each kernel is compared with a float64 reference at edge sizes, with results that begin as NaN,
operands that end where memory does, and work-items in two orders that must give the same bits.
"""

import ctypes
import glob
import json
import mmap
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
KERNELS = HERE.parent.parent / "kernels"
# The bound in parts of the sum of the terms' sizes: sums of floats here, not of tensor cores.
BOUND = 2.0**-20
# The error of a number in parts of the largest number of its row or column. Its power of two is
# that of the first terms, or that of zeros.
OF_LARGEST = {"plain": 2.0**-27, "zeros first": 2.0**-23, "misfits": 2.0**-23, "spread": 0.0}


def clang():
    compiler = shutil.which("clang") or next(iter(glob.glob("/usr/bin/clang-[0-9]*")), None)
    if compiler is None:
        sys.exit("check.py: Clang is missing: PoCL's package brings it")
    return compiler


def build(kernel, options, entry, folder):
    """The kernel as a library; `entry` calls it with numbers and pointers."""
    common = (["activation", "bias"] if kernel["source"].startswith("affine") else []) + [
        "weights",
        "cache",
    ]
    parts = [KERNELS / f"common/{name}.cl" for name in common]
    parts += [HERE / "instructions.cl", KERNELS / "common/products.cl", KERNELS / kernel["source"]]
    text = "".join(f'#line 1 "{p}"\n{p.read_text()}' for p in parts)
    text += "void entry(const uint *n, global void *const *p)\n{\n"
    text += f"    {kernel['function']}({entry});\n}}\n"
    source, objects = folder / "kernel.cl", [folder / "kernel.o", folder / "warp.o"]
    source.write_text(text)
    defines = [f"-D{name}={value}" for name, value in kernel["defines"].items()] + options
    compiler = clang()
    opencl = [
        "-x",
        "cl",
        "-cl-std=CL1.2",
        "-Xclang",
        "-finclude-default-header",
        "-ffp-contract=off",
        "-w",
    ]
    subprocess.run(
        [compiler, *opencl, "-O1", "-fPIC", *defines, "-c", source, "-o", objects[0]], check=True
    )
    subprocess.run([compiler, "-O2", "-fPIC", "-c", HERE / "warp.c", "-o", objects[1]], check=True)
    library = folder / f"{abs(hash((kernel['codename'], tuple(options))))}.so"
    # The kernel's local memory gets a name that can be looked up.
    subprocess.run(
        ["objcopy", f"--globalize-symbol={kernel['function']}.stages", objects[0]], check=True
    )
    subprocess.run([compiler, "-shared", *objects, "-lm", "-o", library], check=True)
    library = ctypes.CDLL(str(library))
    library.local_bytes = kernel["restrictions"]["needs"]["localBytes"]
    library.local_memory = ctypes.addressof(
        ctypes.c_char.in_dll(library, f"{kernel['function']}.stages")
    )
    return library


libc = ctypes.CDLL(None, use_errno=True)


class Operand:
    """An array whose end is that of the memory which may be touched."""

    def __init__(self, values):
        values = np.ascontiguousarray(values)
        pages = -(-values.nbytes // mmap.PAGESIZE) + 1
        self.memory = mmap.mmap(-1, pages * mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self.memory))
        end = start + (pages - 1) * mmap.PAGESIZE
        if libc.mprotect(ctypes.c_void_p(end), ctypes.c_size_t(mmap.PAGESIZE), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
        self.address = end - values.nbytes
        self.array = np.ndarray(values.shape, values.dtype, self.memory, self.address - start)
        self.array[...] = values


def launch(library, sizes, operands, groups, items, seed):
    numbers = (ctypes.c_uint32 * len(sizes))(*sizes)
    pointers = (ctypes.c_void_p * len(operands))(*(o.address for o in operands))
    local = ctypes.c_void_p(library.local_memory), ctypes.c_uint32(library.local_bytes)
    library.launch(
        library.entry,
        numbers,
        pointers,
        *local,
        *(ctypes.c_uint32(n) for n in (*groups, items)),
        ctypes.c_uint64(seed),
    )


def same_in_any_order(library, sizes, operands, shape, groups, items):
    results = []
    for seed in (1, 2):
        result = Operand(np.full(shape, np.nan, np.float32))
        launch(library, sizes, [*operands, result], groups, items, seed)
        results.append(result.array.copy())
    assert results[0].tobytes() == results[1].tobytes(), "another order of work-items, other bits"
    return results[0]


def panels(matrix, rows):
    h, l = matrix.shape
    return matrix.reshape(h // rows, rows, l).transpose(0, 2, 1)


def compare(what, kind, found, a, b):
    """Rows x records of `a b`; infinite and NaN where the reference is not finite."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(all="ignore"):
        expected = a @ b
        size = np.abs(a) @ np.abs(b)
        largest = np.abs(a).max(1, keepdims=True) * np.abs(b).sum(0) + np.abs(a).sum(
            1, keepdims=True
        ) * np.abs(b).max(0)
        bound = BOUND * size + OF_LARGEST[kind] * largest + 1e-37
        if kind == "spread":
            # The bound of `bench --check`: in proportion to each product.
            bound = 2 * a.shape[1] * 2.0**-24 * size
        off = np.abs(found - expected) / bound
    assert not np.isfinite(found[~np.isfinite(expected)]).any(), (
        f"{what}: finite, and the reference is not"
    )
    # A sum of floats may overflow where its result would not.
    finite = np.isfinite(expected) & (size < 3e38)
    assert np.isfinite(found[finite]).all(), f"{what}: not finite, and the reference is"
    worst = off[finite].max()
    assert worst <= 1, f"{what}: {worst} of the bound at {np.argwhere(finite & ~(off <= 1))[0]}"
    return worst


def affine(kernel, folder):
    rng = np.random.default_rng(1)
    d = kernel["defines"]
    bm, bn, bk, items = 32 * d["WARPS"], 8 * d["TILES"], d["BK"], 64 * d["WARPS"]
    first_flag = 3 * bk * bn + 2 * bn
    worst, cases = 0.0, 0
    for weights, options in [
        ("floats", []),
        ("halves", ["-DHALF_WEIGHTS=1"]),
        ("bytes", ["-DBYTE_WEIGHTS=1"]),
    ]:
        library = build(
            kernel, options, "n[0], n[1], n[2], (float2)(0.0f), p[0], p[1], p[2], p[3]", folder
        )
        # Terms, parts: none for one slice, whole and half stages, parts without any.
        sizes = [
            (32, 4, 16, 1),
            (160, 108, 64, 1),
            (128, 104, 128, 2),
            (96, 8, 208, 3),
            (bm + 32, bn, 48, 1),
            (64, 12, 112, 4),
            (32, 8, 48, 3),
            (32, 8, 240, 1),
            (32, 4, 304, 2),
        ]
        for h, w, l, parts in sizes:
            for kind in ("plain", "zeros first", "misfits", "spread"):
                a = rng.normal(0, 0.05, (h, l))
                b = rng.normal(0, 1, (l, w))
                if kind == "spread":
                    # The largest spread that a plan admits: large values meet small weights.
                    by = 2.0 ** np.linspace(0, 8, l)
                    rng.shuffle(by)
                    a, b = a / by, b * by[:, None]
                if kind == "zeros first":
                    # Values of images, as bytes or as parts of 1.
                    b = rng.uniform(0.05, 3, (l, w)) * np.where(np.arange(w) % 2, 50.0, 0.01)
                    b[: rng.integers(1, l)] = 0
                if kind == "misfits":
                    # Rows and records that are large, small, nothing, larger and larger, or hold
                    # one that is.
                    b[:, 0] *= 1e6
                    b[:, 1] *= 1e-9
                    b[:, 2] = 0
                    b[:, 3] *= 2.0 ** np.linspace(0, 40, l)
                    b[l // 2, w - 1] = 7e4
                    b[0, w // 2] = np.nan
                    b[l - 1, w // 3] = np.inf
                    if w > 8:
                        b[:, 4] *= 1e-41
                        b[:16, 5] = 1e-7
                        b[:, 6] *= 1e33 if weights == "bytes" else 1e36
                    if weights == "floats":
                        a[0] *= 1e5
                        a[5] *= 1e-12
                        a[6] = 0
                        a[9, :16] = 0
                        a[14] *= 1e-40
                        a[h - 1] *= 2.0 ** np.linspace(0, 30, l)
                        a[h - 2, l - 1] = 3e7
                        a[h - 6, l - 1] = np.nan
                        a[h - 10, 0] = np.inf
                bias = rng.normal(0, 1, h).astype(np.float32)
                b = b.astype(np.float32)
                if weights == "floats":
                    a = stored = a.astype(np.float32)
                elif weights == "halves":
                    a = stored = a.astype(np.float16)
                else:
                    a = stored = rng.integers(-127, 128, (h, l)).astype(np.int8)
                scale = (2.0 ** rng.integers(-9, 1, h)).astype(np.float32)
                beside = (
                    np.stack([bias.reshape(-1, 16), scale.reshape(-1, 16)], 1)
                    if weights == "bytes"
                    else bias
                )
                groups = (-(-h // bm) * parts, -(-w // bn))

                def run(values):
                    operands = [Operand(x) for x in (panels(stored, 32), values.T, beside)]
                    return same_in_any_order(
                        library, (l, w, h), operands, (w, parts, h), groups, items
                    )

                r = run(b)
                # True if the last group computed anything again.
                again = ctypes.c_uint32.from_address(library.local_memory + 4 * first_flag).value
                assert kind in ("misfits", "spread") or again == 0, f"{kind}: not all fits"
                # Each part is that of its terms.
                depth = -(-(-(-l // bk)) // parts) * bk
                for part in range(parts):
                    k = slice(min(part * depth, l), min(part * depth + depth, l))
                    x, y = a[:, k].astype(np.float64), b[k]
                    if parts == 1:
                        x = np.hstack(
                            [x * scale[:, None] if weights == "bytes" else x, bias[:, None]]
                        )
                        y = np.vstack([y, np.ones((1, w), np.float32)])
                    if x.shape[1] == 0:
                        assert not r[:, part].any(), "a part without terms"
                        continue
                    worst = max(
                        worst, compare((weights, kind, (h, w, l, parts)), kind, r[:, part].T, x, y)
                    )
                # A record's bits are its own, whatever the others hold.
                others = b.copy()
                others[:, ::2] = rng.normal(
                    0, 1 if kind == "misfits" else 1e6, others[:, ::2].shape
                )
                assert run(others)[1::2].tobytes() == r[1::2].tobytes(), (
                    "a record depends on others"
                )
                moved = run(np.roll(b, 13, axis=1))
                assert np.roll(moved, -13, axis=0).tobytes() == r.tobytes(), (
                    "a record depends on its place"
                )
                cases += 1
    return cases, worst


def matmul(kernel, folder):
    rng = np.random.default_rng(2)
    d = kernel["defines"]
    bm, bn, items = 32 * d["WARPS"], 8 * d["TILES"], 64 * d["WARPS"]
    library = build(kernel, [], "n[0], n[1], n[2], p[0], p[1], p[2]", folder)
    worst, cases = 0.0, 0
    for h, w, l in [(bm, 4, 16), (bm + 32, bn + 20, 64), (64, 2 * bn, 128), (32, bn - 4, 48)]:
        a, b = (
            rng.normal(0, 1e3, (h, l)).astype(np.float32),
            rng.normal(0, 1e-3, (l, w)).astype(np.float32),
        )
        a[1, l // 2] = 1e9
        b[l - 1, w // 2] = 1e-20
        operands = [Operand(panels(a, 32)), Operand(b.T)]
        r = same_in_any_order(
            library, (l, w, h), operands, (w, h), (-(-h // bm), -(-w // bn)), items
        )
        worst = max(worst, compare((h, w, l), "misfits", r.T, a, b))
        cases += 1
    return cases, worst


def main():
    wanted = sys.argv[1:]
    library = json.loads((KERNELS / "library.json").read_text())
    kernels = [k for k in library["sources"] if k["restrictions"].get("needs", {}).get("warp")]
    kernels = [k for k in kernels if not wanted or k["codename"] in wanted]
    if not kernels:
        sys.exit("check.py: no such kernel uses instructions of a warp")
    for kernel in kernels:
        check = {"affine": affine, "matmul": matmul}[kernel["source"].split("/")[0]]
        with tempfile.TemporaryDirectory() as folder:
            cases, worst = check(kernel, pathlib.Path(folder))
        print(f"{kernel['codename']}: {cases} cases, {worst:.3f} of the bound", flush=True)


main()
