#!/usr/bin/env python3
"""Examines a release: the needs of programs, contents of packages, manual pages, completions.

usage: tests/release/examine.py DIST
"""

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

LIBRARIES = {
    "libc.so.6",
    "libm.so.6",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libgcc_s.so.1",
    "ld-linux-armhf.so.3",
    "ld-linux-aarch64.so.1",
    "ld-linux-x86-64.so.2",
}
"""Libraries of every system."""
MACHINES = {"x86_64": "X86-64", "aarch64": "AArch64", "armv7": "ARM"}
MOST = {"mortonnet": 4_000_000, "mortonnet-bake": 4_000_000}
"""Bytes of a program."""


def out(*command, **how):
    return subprocess.run(command, check=True, capture_output=True, text=True, **how).stdout


def program(path):
    name, _, target = path.name.rpartition("-")
    assert re.search(f"Machine: .*{MACHINES[target]}\n", out("readelf", "-h", path)), path
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", out("readelf", "-dW", path)))
    assert needed and needed <= LIBRARIES, (path, needed)
    versions = [
        tuple(map(int, version.split(".")))
        for version in re.findall(r"GLIBC_([\d.]+)", out("readelf", "-VW", path))
    ]
    assert max(versions) <= (2, 19), (path, max(versions))
    assert path.stat().st_size <= MOST[name], (path, path.stat().st_size)
    print(
        f"{path.name}: {path.stat().st_size} bytes, needs GLIBC_{'.'.join(map(str, max(versions)))}"
    )


def wheel(path, dist):
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert {name for name in names if "/programs/" in name} == {
            f"mortonnet/programs/{name}"
            for name in (
                "mortonnet-bake",
                "mortonnet-x86_64",
                "mortonnet-aarch64",
                "mortonnet-armv7",
            )
        }
        assert (
            archive.read("mortonnet/programs/mortonnet-armv7")
            == (dist / "mortonnet-armv7").read_bytes()
        )
        assert not [name for name in names if name.endswith((".so", ".pyc"))]
    print(f"{path.name}: {path.stat().st_size} bytes")


def debian(path):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        out("dpkg-deb", "-x", path, root)
        fields = out("dpkg-deb", "-f", path)
        assert "Package: mortonnet\n" in fields and "Depends: libc6 (>= 2.19)\n" in fields, fields
        owners = {line.split()[1] for line in out("dpkg-deb", "-c", path).splitlines()}
        assert owners == {"root/root"}, owners
        pages = sorted((root / "usr/share/man/man1").iterdir())
        assert [page.name for page in pages] == [
            "mortonnet-bake.1.gz",
            "mortonnet-bench.1.gz",
            "mortonnet-tune.1.gz",
            "mortonnet.1.gz",
        ], pages
        for page in pages:
            text = subprocess.run(["gunzip", "-c", page], check=True, capture_output=True).stdout
            made = subprocess.run(
                ["groff", "-man", "-Tascii", "-ww", "-Wbreak"], input=text, capture_output=True
            )
            assert made.returncode == 0 and not made.stderr, (page, made.stderr)
            # Every option of --help has an entry; an option in the middle of a text would be one
            # that was not read.
            name = page.name.split(".")[0]
            if name == "mortonnet-bake":
                command = [root / "usr/bin/mortonnet-bake"]
                options = set(re.findall(r"^  .*?--([\w-]+)", out(*command, "--help"), re.M))
                entries = set(re.findall(r"\.TP\n.*?\\-\\-([\w\\-]+?)\\fR", text.decode()))
                assert options == {entry.replace("\\", "") for entry in entries}, (options, entries)
        for name, line, expected in [
            ("mortonnet-bake", "mortonnet-bake --we", "--weights"),
            ("mortonnet-bake", "mortonnet-bake --target a", "aarch64 armv7"),
            ("mortonnet-bake", "mortonnet-bake -t x", "x86_64"),
            ("mortonnet", "mortonnet --output sc", "scores"),
            ("mortonnet", "mortonnet be", "bench"),
            ("mortonnet-bake", "mortonnet-bake sha", "share"),
            ("mortonnet", "mortonnet bench --rep", "--repeat --report"),
            ("mortonnet", "mortonnet tune -o m", "md"),
            ("mortonnet", "mortonnet --expect /usr/inc", "/usr/include"),
        ]:
            script = (
                f". {root}/usr/share/bash-completion/completions/{name}; COMP_WORDS=({line}); "
                f"COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); "
                f'_{name.replace("-", "_")}; echo "${{COMPREPLY[*]}}"'
            )
            found = out("bash", "-euc", script, cwd=root / "usr").strip()
            assert found == expected, (line, found)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(pages)} manual pages")


def main():
    dist = Path(sys.argv[1])
    for path in sorted(dist.iterdir()):
        if path.suffix == ".whl":
            wheel(path, dist)
        elif path.suffix == ".deb":
            debian(path)
        elif path.name.startswith("mortonnet-"):
            program(path)


if __name__ == "__main__":
    main()
