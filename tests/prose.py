#!/usr/bin/env python3
"""Counts what makes prose and code hard to read, and fails if a count is above its limit.

usage: tests/prose.py            the counts beside their limits; exit 1 if one is above
       tests/prose.py --list X   every place that the count X counts (names: the first column)
       tests/prose.py --rooms    the same counts for each folder of src

The counts are symptoms. A text that passes here can still be unreadable. Somebody who did not write
it has to read it (CONTRIBUTING.md).
"""

import os
import re
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The counts are not all where they should be: a limit with a goal beside it only goes down.
LIMITS = {
    "openings": 1.0,  # percent of comment blocks
    "short docs": 2.0,  # percent of doc blocks
    "wide lines": 0,
    "inner macros": 0,  # #define inside a function of a kernel
    "tuple accesses": 5.0,  # per thousand lines of Rust in src
    "long functions": 0,
    "README words": 1200,
    "README joints": 0.3,  # semicolons and colons a sentence
}
MOST_COLUMNS = 100
MOST_LINES = 70
# First words of sentences that begin with a clause where the noun should stand.
OPENINGS = re.compile(r"^(What|Whether|Of|Who|Those|The same|As)\b")
# Functions of more than MOST_LINES lines, with the reason why they stay whole: tables, and matches
# of a line a case.
LONG_FUNCTIONS: dict[str, str] = {
    "src/bake/front/onnx/fold.rs:folded": "a match with a case for each operation",
    "src/engine/select/devices.rs:facts": "a table of a device's properties, a row a property",
    "src/simd/check.rs:check": "a match with a case for each action",
    "src/simd/micro/image.rs:some": "sums stay in registers from their first value to the store",
    "src/simd/micro/kernel.rs:tile": "sums stay in registers from their first value to the store",
    "src/engine/host.rs:threads_that_share_a_record_do_not_change_it": "the network of a test",
}


@dataclass
class Count:
    """The places found, the number looked at, and the ratio's unit (0: a plain number)."""

    places: list = field(default_factory=list)
    total: int = 0
    per: float = 0

    def value(self):
        return (
            len(self.places) if not self.per else self.per * len(self.places) / max(self.total, 1)
        )


def ours(*patterns):
    """The files below ROOT that a pattern fits, without what was built or comes from elsewhere.

    It needs no git: a copy of the sources without a repository is checked as well.
    """
    found = []
    for folder, folders, names in os.walk(ROOT):
        inside = Path(folder).relative_to(ROOT)
        folders[:] = sorted(
            name
            for name in folders
            if not name.startswith((".", "target", "__pycache__"))
            # The advisories are another project's texts.
            and inside / name != Path("tests/supply/advisory-db")
        )
        paths = [inside / name for name in sorted(names)]
        found += [
            ROOT / path
            for path in paths
            if any(fnmatch(str(path), pattern) for pattern in patterns)
            and not (ROOT / path).is_symlink()
        ]
    return found


def code_only(text):
    """Rust with strings, characters and comments replaced by spaces; lines stay where they are.

    >>> code_only('a("{", b) // }') == 'a("' + ' ' + '", b) ' + ' ' * 4
    True
    >>> code_only("let x = '{'; 'a: loop {}")
    "let x = ' '; 'a: loop {}"
    """
    token = re.compile(
        r"""//[^\n]*|/\*.*?\*/|b?r(?P<hashes>#*)".*?"(?P=hashes)"""
        r"""|"(?:\\.|[^"\\])*"|'(?:\\[^']*|[^'\\])'""",
        re.S,
    )

    def blank(match):
        found = match.group()
        edge = 0 if found[0] == "/" else 1
        inner = found[edge : len(found) - edge]
        return found[:edge] + re.sub(r"[^\n]", " ", inner) + found[len(found) - edge :]

    return token.sub(blank, text)


def blocks(text, marker):
    """The line number and the words of each block of comment lines with the marker (a pattern).

    >>> list(blocks("/// One\\n/// two.\\nx\\n/// Three.", r"///"))
    [(1, 'One two.'), (4, 'Three.')]
    """
    start, words = 0, []
    for number, line in enumerate(text.split("\n") + [""], 1):
        match = re.match(rf"\s*(?:{marker})(?: (.*))?$", line)
        if match and not words:
            start, words = number, [(match.group(1) or "").strip()]
        elif match:
            words.append((match.group(1) or "").strip())
        elif words:
            yield start, " ".join(words).strip()
            words = []


def functions(text):
    """First line, name and number of lines of each function in Rust."""
    code, brackets = code_only(text), re.compile(r"[{}()\[\];]")
    for match in re.finditer(
        r"^[ \t]*(?:pub(?:\([^)]*\))? )?(?:(?:const|unsafe|extern \"[^\"]*\") )*fn (\w+)",
        code,
        re.M,
    ):
        depth = 0
        for bracket in brackets.finditer(code, match.end()):
            if bracket.group() == ";" and depth == 0:
                break
            depth += {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}.get(bracket.group(), 0)
            if bracket.group() == "}" and depth == 0:
                first = code.count("\n", 0, match.end()) + 1
                yield first, match.group(1), code.count("\n", 0, bracket.end()) + 2 - first
                break


def inner_macros(text):
    """Yields the numbers of the lines that define a macro inside a function of OpenCL C.

    >>> list(inner_macros("#define A {\\nvoid f()\\n{\\n#define B\\n}\\n#define C\\n"))
    [4]
    """
    depth, goes_on = 0, False
    for number, line in enumerate(text.splitlines(), 1):
        line = re.sub(r"//.*", "", line)
        directive = goes_on or line.lstrip().startswith("#")
        if depth and re.match(r"\s*#\s*define\b", line) and not goes_on:
            yield number
        if not directive:
            depth += line.count("{") - line.count("}")
        goes_on = directive and line.endswith("\\")


def is_test(path):
    return "tests" in path.relative_to(ROOT / "src").with_suffix("").parts


def count(rust, others, readme):
    """All counts of the given files."""
    counts = {name: Count() for name in LIMITS}
    counts["openings"].per = counts["short docs"].per = 100.0
    counts["tuple accesses"].per = 1000.0
    counts["README joints"].per = 1.0
    for path in [*rust, *others]:
        text = path.read_text()
        where = str(path.relative_to(ROOT))
        prose = path.suffix == ".md"
        for number, line in enumerate(text.splitlines(), 1):
            if (
                len(line) > MOST_COLUMNS
                and not (prose and line.lstrip().startswith(("|", "![", "[")))
                and "://" not in line
            ):
                counts["wide lines"].places.append(f"{where}:{number}")
        if prose:
            continue
        marker = {".rs": r"///|//!|//", ".cl": r"//", ".c": r"//"}.get(path.suffix, r"#")
        for number, words in blocks(text, marker):
            counts["openings"].total += 1
            if OPENINGS.match(words):
                counts["openings"].places.append(f"{where}:{number}: {words[:70]}")
        if path.suffix == ".cl":
            counts["inner macros"].places += [f"{where}:{n}" for n in inner_macros(text)]
        if path.suffix != ".rs":
            continue
        for number, words in blocks(text, r"///|//!"):
            counts["short docs"].total += 1
            if len(words.split()) <= 3:
                counts["short docs"].places.append(f"{where}:{number}: {words}")
        if not path.is_relative_to(ROOT / "src"):
            continue
        code = code_only(text)
        counts["tuple accesses"].total += len(text.splitlines())
        for match in re.finditer(r"(?<=[\w)\]?])\.\d+\b(?!\.\d)", re.sub(r"\b\d+\.\d+", "0", code)):
            counts["tuple accesses"].places.append(
                f"{where}:{code.count(chr(10), 0, match.start()) + 1}"
            )
        for number, name, lines in functions(text):
            if lines > MOST_LINES and f"{where}:{name}" not in LONG_FUNCTIONS and not is_test(path):
                counts["long functions"].places.append(f"{where}:{number}: {name}, {lines} lines")
    if readme:
        prose = re.sub(r"```.*?```", "", readme.read_text(), flags=re.S)
        prose = "\n".join(
            line for line in prose.splitlines() if not line.startswith(("|", "![", "<"))
        )
        prose = re.sub(r"\]\([^)]*\)", "]", prose)
        counts["README words"].places = readme.read_text().split()
        counts["README joints"].places = re.findall(r"[;:](?=\s)", prose)
        counts["README joints"].total = len(re.findall(r"[.!?:](?=\s|$)", prose))
    return counts


def main():
    sources = ours("src/*.rs", "build.rs", "tests/*.rs")
    others = ours(
        "kernels/*.cl",
        "*.py",
        "*.md",
        "tests/run",
        "tests/fresh",
        "tests/needs",
        "release/*.sh",
    )
    match sys.argv[1:]:
        case []:
            found = count(sources, others, ROOT / "README.md")
            above = [name for name, limit in LIMITS.items() if found[name].value() > limit]
            for name, limit in LIMITS.items():
                mark = "  ABOVE" if name in above else ""
                print(f"{name:15} {found[name].value():8.2f}  at most {limit}{mark}")
            sys.exit(1 if above else 0)
        case ["--list", name] if name in LIMITS:
            print("\n".join(count(sources, others, ROOT / "README.md")[name].places))
        case ["--rooms"]:
            rooms = sorted(
                {
                    path.relative_to(ROOT / "src").parts[0]
                    for path in sources
                    if path.is_relative_to(ROOT / "src")
                }
            )
            for room in rooms:
                inside = [p for p in sources if p.is_relative_to(ROOT / "src" / room)]
                found = count(inside, [], None)
                print(
                    f"{room:15}",
                    *(f"{name} {found[name].value():.1f} " for name in list(LIMITS)[:6]),
                )
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
