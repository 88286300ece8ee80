"""Overwrites four bytes of the tests' models at every offset with numbers that are special, and
runs a fuzz target on each: what random changes seldom come upon, a float that is huge, or a size.
Models of more than 14 000 bytes are left out.

usage: tests/fuzz/overwrite.py onnx|tflite [PATTERN...]

A pattern takes 1 to 3 minutes (onnx) or half an hour (tflite).

`tests/fuzz/run SECONDS TARGET` builds the target. A finding ends the run with exit code 1 and the
path of the input.
"""

import pathlib
import subprocess
import sys
import tempfile

PATTERNS = {
    "most": "ffff7f7f",  # the largest float
    "large": "6078ad71",  # 1e30
    "infinite": "0000807f",
    "least": "01000000",  # 1, and the smallest float
    "zero": "00000000",
    "sign": "00000080",  # -0, and the smallest whole number
    "ones": "ffffffff",  # NaN, and -1
}
MOST_BYTES = 14000  # of a model

root = pathlib.Path(__file__).resolve().parent.parent.parent
if (
    len(sys.argv) < 2
    or sys.argv[1] not in ("onnx", "tflite")
    or not PATTERNS.keys() >= set(sys.argv[2:])
):
    sys.exit(f"usage: {sys.argv[0]} onnx|tflite [{'|'.join(PATTERNS)}]...")
target = sys.argv[1]
programs = sorted(root.glob(f"target/fuzz/build/*/release/{target}"))
if not programs:
    sys.exit(f"{target} is not built: tests/fuzz/run 1 {target}")
findings = root / "target/fuzz/findings"
findings.mkdir(parents=True, exist_ok=True)
for pattern in sys.argv[2:] or PATTERNS:
    with tempfile.TemporaryDirectory() as folder:
        for model in sorted((root / "tests" / target).glob(f"*.{target}")):
            data = model.read_bytes()
            if len(data) > MOST_BYTES:
                continue
            for at in range(len(data) - 3):
                changed = data[:at] + bytes.fromhex(PATTERNS[pattern]) + data[at + 4 :]
                (pathlib.Path(folder) / f"{model.stem}-{at}").write_bytes(changed)
        options = [
            "-runs=0",
            f"-max_len={MOST_BYTES}",
            "-timeout=30",
            f"-artifact_prefix={findings}/{target}-{pattern}-",
        ]
        done = subprocess.run(
            [programs[0], *options, folder], stderr=subprocess.PIPE, text=True, errors="replace"
        )
    runs = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
    if done.returncode != 0 or not runs:
        print(*done.stderr.splitlines()[-20:], sep="\n")
        sys.exit(f"{target} fails with the pattern {pattern}")
    print(f"{target:6} {pattern:9} {runs[0].split()[1]:>8} executions", flush=True)
