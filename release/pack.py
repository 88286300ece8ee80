#!/usr/bin/env python3
"""Packs programs as a Python wheel and a Debian package for each kind of machine.

usage: release/pack.py DIST PAGES HOST...

DIST has mortonnet-TARGET, mortonnet-bake-HOST and sbom.json (release/make), and gets the packages
and SHA256SUMS. PAGES has the manual pages and completions (release/pages.py). Times in the packages
are SOURCE_DATE_EPOCH, so the same files give the same bytes.
"""

import base64
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = re.search(r'^version = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
SUMMARY = re.search(r'^description = "(.*)"', (ROOT / "Cargo.toml").read_text(), re.M)[1]
TIME = int(os.environ["SOURCE_DATE_EPOCH"])

WHEELS = {
    "x86_64": "manylinux_2_19_x86_64",
    "aarch64": "manylinux_2_19_aarch64",
    "armv7": "manylinux_2_19_armv7l",
}
DEBIAN = {"x86_64": "amd64", "aarch64": "arm64", "armv7": "armhf"}


def wheel(dist, host):
    """The Python package with the programs in it."""
    info = f"mortonnet-{VERSION}.dist-info"
    files = {
        f"mortonnet/{file.name}": file.read_bytes()
        for file in (ROOT / "python/mortonnet").glob("*.py")
    }
    files["mortonnet/programs/mortonnet-bake"] = (dist / f"mortonnet-bake-{host}").read_bytes()
    for target in WHEELS:
        files[f"mortonnet/programs/mortonnet-{target}"] = (
            dist / f"mortonnet-{target}"
        ).read_bytes()
    for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
        files[f"{info}/licenses/{licence}"] = (ROOT / licence).read_bytes()
    files[f"{info}/sboms/sbom.json"] = (dist / "sbom.json").read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: mortonnet\nVersion: {VERSION}\nSummary: {SUMMARY}\n"
        "License-Expression: MIT OR Apache-2.0\n"
        "License-File: LICENSE-MIT\nLicense-File: LICENSE-APACHE\nRequires-Python: >=3.9\n"
        "Requires-Dist: numpy\n"
        "Description-Content-Type: text/markdown\n\n"
        f"{(ROOT / 'python/README.md').read_text('utf-8')}"
    ).encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: mortonnet {VERSION}\nRoot-Is-Purelib: false\nTag: "
        f"py3-none-{WHEELS[host]}\n"
    ).encode()
    rows = []
    for name, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    files[f"{info}/RECORD"] = ("".join(rows) + f"{info}/RECORD,,\n").encode()
    path = dist / f"mortonnet-{VERSION}-py3-none-{WHEELS[host]}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, time.gmtime(TIME)[:6])
            entry.create_system = 3  # Unix, whose permissions follow
            entry.external_attr = (0o100755 if "/programs/" in name else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)


def debian(dist, pages, host):
    """The Debian package: mortonnet-bake on the PATH, what it copies in /usr/lib."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        doc = "usr/share/doc/mortonnet"
        put(root, "usr/bin/mortonnet-bake", (dist / f"mortonnet-bake-{host}").read_bytes(), 0o755)
        for target in WHEELS:
            put(
                root,
                f"usr/lib/mortonnet/mortonnet-{target}",
                (dist / f"mortonnet-{target}").read_bytes(),
                0o755,
            )
        for page in pages.glob("*.1"):
            put(root, f"usr/share/man/man1/{page.name}.gz", packed(page.read_bytes()))
        for completion in pages.glob("*.bash"):
            put(
                root,
                f"usr/share/bash-completion/completions/{completion.stem}",
                completion.read_bytes(),
            )
        for name in (
            "BAKE.md",
            "BOARDS.md",
            "CLI.md",
            "INPUT.md",
            "SERVICE.md",
            "ONNX.md",
            "TFLITE.md",
        ):
            put(root, f"{doc}/{name}.gz", packed((ROOT / "docs" / name).read_bytes()))
        put(root, f"{doc}/README.md.gz", packed((ROOT / "README.md").read_bytes()))
        put(root, f"{doc}/changelog.gz", packed((ROOT / "CHANGELOG.md").read_bytes()))
        put(root, f"{doc}/sbom.json.gz", packed((dist / "sbom.json").read_bytes()))
        licences = "\n".join(
            (ROOT / name).read_text("utf-8") for name in ("LICENSE-MIT", "LICENSE-APACHE")
        )
        put(
            root,
            f"{doc}/copyright",
            f"mortonnet: MIT or Apache-2.0, as you like.\n\n{licences}".encode(),
        )
        size = sum(file.stat().st_size for file in root.rglob("*") if file.is_file())
        maintainer = (
            f"{os.environ.get('DEBFULLNAME', 'mortonnet')} "
            f"<{os.environ.get('DEBEMAIL', 'mortonnet@localhost')}>"
        )
        control = (
            f"Package: mortonnet\nVersion: {VERSION}\nArchitecture: {DEBIAN[host]}\nMaintainer: "
            f"{maintainer}\nSection: science\n"
            f"Priority: optional\nInstalled-Size: {-(-size // 1024)}\nDepends: libc6 (>= 2.19)\n"
            f"Description: {SUMMARY}\n mortonnet-bake puts a network (ONNX, TensorFlow Lite, "
            "JSON) into a program for x86-64,\n"
            " AArch64 or 32-bit ARM, without a compiler. The program reads records on stdin and "
            "writes\n classes on stdout.\n"
        )
        put(root, "DEBIAN/control", control.encode())
        for path in [*root.rglob("*"), root]:
            os.utime(path, (TIME, TIME))
        file = dist / f"mortonnet_{VERSION}_{DEBIAN[host]}.deb"
        subprocess.run(
            ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", root, file],
            check=True,
            stdout=subprocess.DEVNULL,
        )


def put(root, name, content, mode=0o644):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)
    for parent in path.relative_to(root).parents:
        (root / parent).chmod(0o755)


def packed(content):
    return gzip.compress(content, 9, mtime=0)


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    dist, pages, hosts = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    for host in hosts:
        wheel(dist, host)
        debian(dist, pages, host)
    files = sorted(file for file in dist.iterdir() if file.name != "SHA256SUMS")
    sums = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (dist / "SHA256SUMS").write_text("".join(sums))


if __name__ == "__main__":
    main()
