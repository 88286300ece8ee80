#!/usr/bin/env python3
"""Has a kernel fail on a real GPU in the middle of a stream, and looks at what the program prints.

usage: tests/gpu/failed_kernel.py PROGRAM [--device NVIDIA]

PROGRAM is one with the digits network. A kernel of the plan thesis-baseline is edited so that it
writes far outside every buffer when a sum is large, and one record has a large value. The run must
end with an error, after right answers alone and none for that record. Records come one by one and
in batches.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FAULTS = {
    "matmul/naive.cl": "the first launch of a batch",
    "bias/rm.cl": "a launch in the middle and the last one",
}

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("program")
parser.add_argument("--device", default="NVIDIA")
a = parser.parse_args()

lines = (ROOT / "model/digits/test.csv").read_text().splitlines()
cells = lines[300].split(",")
cells[10] = "1e9"
lines[300] = ",".join(cells)
records = "\n".join(lines) + "\n"


def run(*options):
    command = [a.program, "--plan", "thesis-baseline", *options]
    r = subprocess.run(command, input=records, capture_output=True, text=True, timeout=120)
    return r.returncode, r.stdout.split(), r.stderr


code, expected, said = run("-d", a.device)
if code or len(expected) != len(lines):
    sys.exit(f"the kernels as they are: exit status {code}, {len(expected)} answers\n{said}")
failed = 0
for source, what in FAULTS.items():
    with tempfile.TemporaryDirectory() as folder:
        text = (ROOT / "kernels" / source).read_text()
        end = text.rindex("}")
        value = "r[row * w + col]"
        text = (
            text[:end]
            + f"    if (fabs({value}) > 1e6f) r[0x4000000000ul + row] = 1.0f;\n"
            + text[end:]
        )
        (Path(folder) / source).parent.mkdir(parents=True)
        (Path(folder) / source).write_text(text)
        for batch in "1", "64":
            code, found, said = run("-d", a.device, "--kernels", folder, "-b", batch)
            right = code == 1 and len(found) <= 300 and found == expected[: len(found)]
            failed += not right
            last = said.strip().splitlines()[-1] if said.strip() else ""
            print(
                f"{'right' if right else 'WRONG'}: {what}, -b {batch}: exit status {code}, "
                f"{len(found)} answers, {last}",
                flush=True,
            )
sys.exit(failed > 0)
