"""Machine code of ARM, and the cycles that the rules of cores.md allow it."""

import os
import pathlib
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BOARDS = ROOT / "target/boards"
FETCHED = ROOT / "target/arm"
TARGETS = {"aarch64": "aarch64-unknown-linux-gnu", "armv7": "armv7-unknown-linux-gnueabihf"}
OBJDUMP = {"aarch64": "aarch64-linux-gnu-objdump", "armv7": "arm-linux-gnueabihf-objdump"}
ITERATIONS = 48  # of a simulated loop; the first half warms up
BRANCH = re.compile(
    r"(b|b\.?(eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)|cbn?z|tbn?z)(\.n|\.w)?$"
)
# The kinds of instructions that multiply, and those that add to what their result holds.
PRODUCTS = ("fma", "dot", "product", "matrix")
SUMS = (*PRODUCTS, "pairs")


# Machine code


class Instruction:
    """An instruction with the registers that it reads and writes, and its class in cores.md."""

    def __init__(self, machine, address, text):
        self.address, self.text = address, text
        self.name, _, self.operands = text.partition(" ")
        self.operands = self.operands.strip()
        self.branches = bool(BRANCH.match(self.name))
        self.target = int(self.operands.split(",")[-1].strip(), 16) if self.branches else None
        self.memory = "[" in self.operands
        self.written_back = bool(re.search(r"\]!|\]\s*,|\]\}?!", self.operands)) or (
            machine == "armv7" and self.operands.endswith("!")
        )
        (aarch64 if machine == "aarch64" else armv7)(self)

    def __repr__(self):
        return self.text


def registers(text, scalar, vector):
    """The names of registers in a text, with one name for all views of a register."""
    found = []
    for kind, number in re.findall(r"\b([a-z])(\d+)\b", text):
        if kind in vector:
            found.append(f"v{number}")
        elif kind in scalar:
            found.append(f"x{number}")
    return found + (["sp"] if re.search(r"\bsp\b", text) else [])


def aarch64(i):
    name, operands = i.name, i.operands
    data, _, address = operands.partition("[")
    vectors = len(re.findall(r"\b[vqds]\d+\b", data))
    flags = name in ("cmp", "cmn", "tst", "subs", "adds", "ands", "fcmp", "ccmp")
    all_of = registers(operands, "xw", "vqdshb")
    loads = name.startswith("ld")
    stores = name.startswith("st")
    if loads or stores:
        bits = 128 if re.search(r"\bq\d|\.(4s|2d|8h|16b)", data) else 64
        total = bits * max(vectors, 1)
        if not vectors:
            i.kind = "load-words" if name.startswith("ldp") else "load-word"
            i.kind = "store-word" if stores else i.kind
        elif name == "ld1r":
            i.kind = "load-all-lanes"
        elif re.search(r"\}\[\d", operands):
            i.kind = "load-lane" if loads else "store-64"
        else:
            size = min(s for s in (64, 128, 256, 512) if s >= min(total, 512))
            i.kind = f"load-{size}" if loads else f"store-{min(size, 256)}"
        moved = registers(data, "xw", "vqdshb")
        base = registers(address, "xw", "")
        i.writes = moved if loads else []
        i.reads = base + (moved if stores or i.kind == "load-lane" else [])
        i.base = base[0] if i.written_back and base else None
        i.vector = bool(vectors)
        return
    i.base = None
    i.vector = bool(re.search(r"\bv\d+|\b[qds]\d+\b", operands)) and name != "prfm"
    i.writes, i.reads = all_of[:1], all_of[1:]
    if name in ("prfm", "prfum"):
        i.kind, i.writes, i.reads = "prefetch", [], all_of
    elif i.branches or name in ("ret", "br", "bl", "blr"):
        i.kind, i.writes = "branch", []
        i.reads = all_of if name.startswith(("cb", "tb")) else ["flags"]
    elif i.vector:
        if name in ("fmla", "fmls"):
            i.kind, i.reads = "fma", all_of
        elif name == "sdot":
            i.kind, i.reads = "dot", all_of
        elif name == "smmla":
            i.kind, i.reads = "matrix", all_of
        elif name in ("smull", "smull2"):
            i.kind = "product"
        elif name in ("smlal", "smlal2"):
            i.kind, i.reads = "product", all_of
        elif name == "sadalp":
            i.kind, i.reads = "pairs", all_of
        elif name in ("ins", "bsl", "bit", "bif") or re.search(r"^v\d+\.[sdhb]\[", operands):
            i.kind = "insert" if registers(operands, "xw", "") else "simd"
            i.reads = all_of
        elif name == "dup":
            i.kind = "broadcast" if registers(operands, "xw", "") else "simd"
        elif name in ("fcvtl", "fcvtl2", "fcvtn", "fcvtn2"):
            i.kind = "halves"
        elif name in ("scvtf", "ucvtf", "fcvtzs", "fcvtns"):
            i.kind = "convert"
        elif name.startswith(("sshll", "ushll", "shl", "sshr", "ushr", "sxtl", "uxtl")):
            i.kind = "shift"
        elif name == "fdiv":
            i.kind = "divide"
        elif name in ("fmax", "fmin", "fmaxnm", "fminnm"):
            i.kind = "minmax"
        elif name in ("frecpe", "frecps", "frsqrte"):
            i.kind = "estimate"
        elif name == "fmov" and registers(operands, "xw", ""):
            i.kind = "broadcast"
        elif name in ("fadd", "fsub", "fmul", "fabd"):
            i.kind = "fp"
        else:
            i.kind = "simd"
    elif name in ("mul", "madd", "msub", "umulh", "udiv"):
        i.kind = "multiply"
    else:
        shift = re.search(r"(lsl|lsr|asr) #(\d+)", operands)
        i.kind = "integer-shifted" if shift and int(shift[2]) > 4 else "integer"
    if flags:
        i.writes, i.reads = i.writes + ["flags"], all_of if name[0] in "ct" else i.reads
    if name in ("movk", "bfi"):
        i.reads = all_of


def views(text):
    """The vector registers of a text for armv7, in halves: q1 is d2 and d3."""
    text = re.sub(
        r"d(\d+)(?:\[\d*\])?-d(\d+)",
        lambda m: ",".join(f"d{n}" for n in range(int(m[1]), int(m[2]) + 1)),
        text,
    )
    found = []
    for kind, number in re.findall(r"\b([qds])(\d+)\b", text):
        n = int(number)
        found += {"q": [f"d{2 * n}", f"d{2 * n + 1}"], "d": [f"d{n}"], "s": [f"d{n // 2}"]}[kind]
    return found


def armv7(i):
    name, operands = i.name.split(".")[0], i.operands
    data, _, address = operands.rpartition("[")
    core = re.findall(r"\b(r\d+|ip|lr|fp|sl|sb|sp)\b", operands)
    vectors = views(operands)
    first = views(operands.split(",")[0])
    i.base, i.vector = None, bool(vectors)
    if name.startswith(("vld", "vst")):
        base = re.findall(r"\b(r\d+|ip|lr|fp|sl|sb|sp)\b", address or operands)
        moved = views(data if address else operands)
        i.base = base[0] if i.written_back and base else None
        size = min(s for s in (64, 128, 256, 512) if s >= min(64 * len(moved), 512))
        i.kind = f"load-{size}" if name.startswith("vld") else f"store-{min(size, 256)}"
        if "[]" in data:
            i.kind = "load-all-lanes"
        elif re.search(r"\[\d\]", data):
            i.kind = "load-lane"
        i.writes = moved if name.startswith("vld") else []
        i.reads = base + ([] if name.startswith("vld") else moved)
    elif vectors:
        i.writes, i.reads = first, vectors[len(first) :]
        if name in ("vfma", "vmla", "vfms", "vmls"):
            i.kind, i.reads = "fma", vectors
        elif name in ("vmull", "vmlal"):
            i.kind, i.reads = "product", vectors if name == "vmlal" else i.reads
        elif name == "vpadal":
            i.kind, i.reads = "pairs", vectors
        elif name == "vcvt":
            i.kind = "halves" if "f16" in i.name else "convert"
        elif name in ("vmovl", "vshl", "vshr", "vshll"):
            i.kind = "shift"
        elif name in ("vmax", "vmin"):
            i.kind = "minmax"
        elif name in ("vrecpe", "vrecps"):
            i.kind = "estimate"
        elif name in ("vadd", "vsub", "vmul", "vabs", "vneg") and "f32" in i.name:
            i.kind = "fp"
        elif name == "vdiv":
            i.kind = "divide"
        elif name in ("vdup", "vmov") and core:
            i.kind = "broadcast"
        else:
            i.kind = "simd"
    elif i.branches or name in ("bx", "bl", "pop"):
        i.kind, i.writes, i.reads = "branch", [], ["flags"]
    elif name.startswith("ldr"):
        i.kind, i.writes, i.reads = "load-word", core[:1], core[1:]
    elif name.startswith("str"):
        i.kind, i.writes, i.reads = "store-word", [], core
    elif name == "pld":
        i.kind, i.writes, i.reads = "prefetch", [], core
    else:
        i.kind, i.writes, i.reads = "integer", core[:1], core[1:] or core
        if name.startswith("cmp") or name in ("subs", "adds", "tst"):
            i.writes = core[:1] + ["flags"] if name in ("subs", "adds") else ["flags"]
        if name in ("mul", "mla"):
            i.kind = "multiply"


def functions(machine, program, wanted=None):
    """Yields the name and the instructions of functions of a program."""
    command = [OBJDUMP[machine], "-d", "-C", "--no-show-raw-insn", str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        name, body = "", []
        for line in process.stdout:
            if line.endswith(">:\n"):
                if body:
                    yield name, body
                name, body = line.split(" <", 1)[1][:-3], []
            elif ":\t" in line and (wanted is None or wanted(name)):
                address, text = line.rstrip("\n").split(":\t", 1)
                text = re.split(r"//|@|;|<", text.replace("\t", " "))[0].strip()
                body.append((int(address, 16), text))
        if body:
            yield name, body
    if process.returncode:
        sys.exit(f"{' '.join(command)}: exit {process.returncode}")


def blocks(body):
    """The basic blocks of a function: the places of their instructions and their successors."""
    places = {address: n for n, (address, _) in enumerate(body)}

    def jump(n):
        """Where an instruction jumps to, and True if it may go on with the next one."""
        name, _, operands = body[n][1].partition(" ")
        if name in ("ret", "br", "brk", "udf", "bx", "pop"):
            return None, False
        if not BRANCH.match(name):
            return None, True
        to = re.search(r"([0-9a-f]+)$", operands)
        return places.get(int(to[1], 16)) if to else None, name not in ("b", "b.n", "b.w")

    starts = {0}
    for n, (_, text) in enumerate(body):
        to, goes_on = jump(n)
        if to is not None or not goes_on:
            starts |= {n + 1} | ({to} if to is not None else set())
    starts = sorted(s for s in starts if s < len(body))
    index = {s: n for n, s in enumerate(starts)}
    found = []
    for start, end in zip(starts, [*starts[1:], len(body)]):
        to, goes_on = jump(end - 1)
        successors = ([to] if to is not None else []) + (
            [end] if goes_on and end < len(body) else []
        )
        found.append((range(start, end), [index[s] for s in successors]))
    return found


def inner_loops(machine, body):
    """The innermost loops, as lists of instructions in the order of their addresses.

    A loop belongs to a back edge, whose target dominates its source. It has the blocks that reach
    the source without passing the target.
    """
    graph = blocks(body)
    before = [[] for _ in graph]
    for n, (_, successors) in enumerate(graph):
        for s in successors:
            before[s].append(n)
    everything = set(range(len(graph)))
    through = [{0}] + [everything] * (len(graph) - 1)
    changed = True
    while changed:
        changed = False
        for n in range(1, len(graph)):
            ways = [through[b] for b in before[n]]
            common = (set.intersection(*ways) if ways else set()) | {n}
            changed |= common != through[n]
            through[n] = common
    loops = []
    for n, (_, successors) in enumerate(graph):
        for head in successors:
            if head not in through[n]:
                continue
            inside, open_blocks = {head}, [n]
            while open_blocks:
                block = open_blocks.pop()
                if block not in inside:
                    inside.add(block)
                    open_blocks += before[block]
            loops.append(inside)
    inner = [a for a in loops if not any(b < a for b in loops)]
    unique = {tuple(sorted(a)): None for a in inner}
    return [
        [Instruction(machine, *body[n]) for block in a for n in graph[block][0]] for a in unique
    ]


# The model


def rules():
    """The rules of cores.md: for each core a dictionary of cells."""
    lines = (HERE / "cores.md").read_text().split("## Rules\n", 1)[1].splitlines()
    table = [line for line in lines if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    cores = {name: {} for name in rows[0][1:]}
    for row in rows[2:]:
        for core, cell in zip(rows[0][1:], row[1:], strict=True):
            cores[core][row[0].split(":")[0]] = cell
    return {name: Core(name, cells) for name, cells in cores.items()}


class Cost:
    """A cell of cores.md."""

    def __init__(self, cell):
        words = cell.split()
        self.slots = int(words[0])
        self.pipes = {}
        for pipe, cycles in re.findall(r"([A-Z])(\d*)", words[1]):
            self.pipes[pipe] = self.pipes.get(pipe, 0) + int(cycles or 1)
        latency = re.match(r"(\d+)(?:/(\d+))?(?:\+(\d+))?", words[2])
        self.latency = int(latency[1])
        self.to_sum = int(latency[2] or latency[1])
        self.step = int(latency[3] or 0)
        self.first, self.alone = "first" in words, "alone" in words


class Core:
    def __init__(self, name, cells):
        self.name = name
        self.in_order = cells["order"] == "in"
        self.instructions, self.slots = map(int, cells["width"].split())
        self.pipes = {k: int(v) for k, v in (p.split("=") for p in cells["pipes"].split())}
        self.peak = int(cells["peak"])
        self.peak_of_products = float(cells["peak of products"])
        known = {"order", "width", "pipes", "peak", "peak of products"}
        self.costs = {k: Cost(v) for k, v in cells.items() if k not in known and v != "-"}

    def cost(self, instruction):
        if instruction.kind not in self.costs:
            sys.exit(f"cores.md: {self.name} has no rule for {instruction.kind}: {instruction}")
        return self.costs[instruction.kind]

    def cycles(self, body):
        """The cycles of an iteration at best, and the rule that bounds them."""
        if self.in_order:
            issue, _ = self.issue(body, latencies=False)
            whole, _ = self.issue(body, latencies=True)
            return (whole, "latency") if whole > issue + 0.01 else (issue, "issue")
        bounds = {"front end": len(body) / self.instructions}
        slots, load = 0, {}
        for i in body:
            costs = [self.cost(i)] + ([self.costs["writeback"]] if i.base else [])
            for cost in costs:
                slots += cost.slots
                for pipe, cycles in cost.pipes.items():
                    load[pipe] = load.get(pipe, 0) + cycles
        bounds["µops"] = slots / self.slots
        for pipe, count in self.pipes.items():
            work = load.get(pipe, 0)
            if pipe == "V":
                work += load.get("F", 0) + load.get("G", 0)
            if pipe == "I":
                work += load.get("M", 0) if self.name == "A76" else 0
            bounds[pipe] = work / count
        bounds["latency"], _ = self.flow(body)
        bound = max(bounds, key=lambda b: (bounds[b], b == "V"))
        return bounds[bound], bound

    def ready(self, i, cost, done, sums):
        """The cycle in which the operands of an instruction are there."""
        when = 0
        for register in i.reads:
            is_sum = i.kind in SUMS and register in i.writes
            when = max(when, (sums if is_sum else done).get(register, 0))
        return when

    def finish(self, i, cost, start, done, sums):
        for n, register in enumerate(i.writes):
            done[register] = start + cost.latency + cost.step * n
            sums[register] = start + (cost.to_sum if i.kind in SUMS else cost.latency)
        if i.base:
            # An out-of-order core adds to the address before the data of a store are there.
            done[i.base] = (start if self.in_order else done.get(i.base, 0)) + 1

    def flow(self, body):
        """The cycles of an iteration if only latencies count."""
        done, sums, ends = {}, {}, []
        for _ in range(ITERATIONS):
            end = 0
            for i in body:
                cost = self.cost(i)
                start = self.ready(i, cost, done, sums)
                self.finish(i, cost, start, done, sums)
                end = max(end, start)
            ends.append(end)
        half = ITERATIONS // 2
        return (ends[-1] - ends[half - 1]) / half, ends

    def issue(self, body, latencies):
        """The cycles of an iteration that issues in order."""
        done, sums, busy, ends = {}, {}, {}, []
        now, used, count, last = 0, {}, 0, None
        for _ in range(ITERATIONS):
            for i in body:
                cost = self.cost(i)
                start = now
                if latencies:
                    start = max(start, self.ready(i, cost, done, sums))
                start = max(start, busy.get("D", 0) if "D" in cost.pipes else 0)
                fits = (
                    start == now
                    and count < self.instructions
                    and not cost.alone
                    and (count == 0 or not (cost.first or last.alone))
                    and all(
                        used.get(p, 0) + n <= self.pipes[p]
                        for p, n in cost.pipes.items()
                        if p != "D"
                    )
                )
                if not fits and not (count == 0 and start == now):
                    start = max(start, now + (1 if count else 0))
                    now, used, count = start, {}, 0
                for pipe, n in cost.pipes.items():
                    used[pipe] = used.get(pipe, 0) + n
                busy["D"] = start + cost.pipes["D"] if "D" in cost.pipes else busy.get("D", 0)
                if latencies:
                    self.finish(i, cost, start, done, sums)
                last, count = cost, count + 1
                if cost.alone or cost.slots > 1:
                    now, used, count = start + cost.slots, {}, 0
            ends.append(now + (1 if count else 0))
        half = ITERATIONS // 2
        return (ends[-1] - ends[half - 1]) / half, ends


def build(folder, *options):
    """Builds the program for both boards into a folder, with symbols, and returns the files."""
    if not (BOARDS / "zigbuild").exists():
        subprocess.run([ROOT / "tests/boards/setup"], check=True)
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("MORTONNET_")},
        "RUSTFLAGS": "-C symbol-mangling-version=v0",
        "CARGO_PROFILE_RELEASE_STRIP": "false",
        "CARGO_PROFILE_RELEASE_BUILD_OVERRIDE_OPT_LEVEL": "0",
        "CARGO_INCREMENTAL": "0",
    }
    command = [BOARDS / "zigbuild", "zigbuild", "--release", "--quiet", "--target-dir", folder]
    for target in TARGETS.values():
        command += ["--target", f"{target}.2.19"]
    subprocess.run([*command, *options], cwd=ROOT, check=True, env=environment)
    return [folder / target / "release/mortonnet" for target in TARGETS.values()]
