#!/usr/bin/env python3
"""Draws the plots of docs/measured from the tables of the same page.

usage: benches/plot.py            writes every plot
       benches/plot.py --check    fails if a plot is not that of its table

A comment in the page describes its plot, one key a line:

    <!-- plot
    file: ../images/NAME.svg         where the plot goes, beside the page
    form: dots | bars
    title: TEXT
    table: HEADING NUMBER            the table under that heading; several lines add up
    rows: COLUMN = VALUE             keeps these rows (or !=); ignored without that column
    label: COLUMN; COLUMN            the text in front of a row
    series: COLUMN; COLUMN           a mark for each of these columns, or
    series of: COLUMN                a mark for each word of this column, with
    value: COLUMN                    the column of the number
    divide: COLUMN                   divides each number by this column's
    left: TEXT, right: TEXT          what smaller and larger numbers mean
    -->

A cell's number is its first one. Empty cells of label columns repeat the cell above.
"""

import math
import re
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "docs/measured"
PLOT = re.compile(r"^<!-- plot\n(?P<keys>(?:.+\n)*?)-->$", re.M)
WIDTH, RIGHT, ROW = 860, 40, 24
LETTER = 7.6  # pixels, the widest mean of a label at 13 px
LIGHT = ["#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e", "#57606a", "#9a6700"]
DARK = ["#58a6ff", "#f0883e", "#3fb950", "#bc8cff", "#ff7b72", "#9da7b1", "#d29922"]
STYLE = """
    text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; font-size: 13px; }
    text { fill: #24292f; }
    .title { font-size: 15px; font-weight: 600; }
    .note { fill: #57606a; }
    .page { fill: #ffffff; stroke: #d0d7de; }
    .line { stroke: #d8dee4; }
    .one { stroke: #57606a; stroke-width: 1.5; }
    .mark { stroke: #ffffff; stroke-width: 0.8; fill-opacity: 0.9; }"""
STYLE_DARK = """
      text { fill: #e6edf3; }
      .note { fill: #9da7b1; }
      .page { fill: #0d1117; stroke: #30363d; }
      .line { stroke: #30363d; }
      .one { stroke: #9da7b1; }
      .mark { stroke: #0d1117; }"""


def cells(line):
    """The cells of a row of Markdown."""
    parts = re.split(r"(?<!\\)\|", line.strip()[1:-1])
    return [part.strip().replace("\\|", "|").replace("`", "") for part in parts]


def table(text, heading, number):
    """The rows of the `number`th table under a heading, each a dictionary by column."""
    section = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if not section:
        raise SystemExit(f'no heading "{heading}"')
    found = re.findall(r"(?:^\|.*\n)+", section[1], re.M)
    if len(found) < number:
        raise SystemExit(f'"{heading}" has {len(found)} tables, expected {number}')
    head, _, *lines = found[number - 1].splitlines()
    columns = cells(head)
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise SystemExit(
            f'"{heading}": a plot needs a name of its own for each column, found {twice}'
        )
    return [dict(zip(columns, cells(line))) for line in lines]


def number_of(cell):
    """The first number of a cell; None if there is none.

    >>> number_of("12562 (12392 to 12706)"), number_of("2.95 ms"), number_of("–"), number_of("")
    (12562.0, 2.95, None, None)
    """
    found = re.match(r"[\d.]+", cell)
    return float(found[0]) if found else None


def keep(row, filters):
    for rule in filters:
        column, sign, value = re.fullmatch(r"(.*?) (!?=) (.*)", rule).groups()
        if column in row and (row[column] == value) != (sign == "="):
            return False
    return True


def labels(rows, columns):
    """Fills the empty cells of the label columns from the row above."""
    above = {}
    for row in rows:
        for column in columns:
            if column in row:
                row[column] = row[column] or above.get(column, "")
                above[column] = row[column]
    return rows


def points(text, keys):
    """(row labels, series, {(label, series): number}) of a plot."""
    columns = [name.strip() for name in keys["label"][0].split(";")]
    names, wanted, values = [], [], {}
    for source in keys["table"]:
        heading, number = source.rsplit(" ", 1)
        for row in labels(table(text, heading, int(number)), columns):
            if not keep(row, keys.get("rows", [])):
                continue
            words = [row.get(c, "") for c in columns]
            if len(columns) > 1 and words[1].isdigit():
                words[1] = f"{columns[1]} {words[1]}"
            label = ", ".join(word for word in words if word)
            if label not in names:
                names.append(label)
            if "series of" in keys:
                found = [(row[keys["series of"][0]], row[keys["value"][0]])]
            else:
                series = [name.strip() for name in keys["series"][0].split(";")]
                found = [(name, row[name]) for name in series if name in row]
            under = number_of(row[keys["divide"][0]]) if "divide" in keys else 1
            for name, cell in found:
                if name not in wanted:
                    wanted.append(name)
                if number_of(cell) is not None:
                    values[label, name] = number_of(cell) / under
    return names, wanted, values


def ticks(low, high, log):
    """Round numbers from below `low` to above `high`."""
    if not log:
        step = 10 ** math.floor(math.log10(high))
        step = next(s for s in (step / 5, step / 2, step, 2 * step) if high / s <= 7)
        return [step * i for i in range(math.ceil(high / step - 1e-9) + 1)]
    steps = (1, 2, 5) if high / low < 400 else (1,)
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    every = [step * 10.0**power for power in powers for step in steps]
    first = max(t for t in every if t <= low)
    last = min(t for t in every if t >= high)
    return [t for t in every if first <= t <= last]


def mark(shape, x, y, style):
    """One mark; shape and colour both tell the series."""
    path = {
        0: f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5.5"',
        1: f'<rect x="{x - 5:.1f}" y="{y - 5:.1f}" width="10" height="10"',
        2: f'<path d="M{x:.1f} {y - 6.5:.1f}l6.5 11.5h-13z"',
        3: f'<path d="M{x:.1f} {y - 7:.1f}l7 7l-7 7l-7 -7z"',
        4: f'<path d="M{x:.1f} {y + 6.5:.1f}l6.5 -11.5h-13z"',
        5: f'<path d="M{x - 2:.1f} {y - 6:.1f}h4v4h4v4h-4v4h-4v-4h-4v-4h4z"',
        6: f'<rect x="{x - 2.5:.1f}" y="{y - 7:.1f}" width="5" height="14"',
    }
    return f'{path[shape % 7]} class="mark {style}"/>'


def draw(text, keys):
    """The plot as SVG."""
    names, series, values = points(text, keys)
    if not values:
        raise SystemExit(f"{keys['file'][0]}: no numbers")
    bars = keys["form"][0] == "bars"
    low, high = min(values.values()), max(values.values())
    log = not bars and high / low > 5
    if not log:
        low = 0
    if "divide" in keys:
        low, high = min(low, 1), max(high, 1)
    places = ticks(low, high, log)
    least, most = places[0], places[-1]

    left = 40 + LETTER * max(map(len, names))

    def across(value):
        if log:
            share = math.log(value / least) / math.log(most / least)
        else:
            share = (value - least) / (most - least)
        return left + share * (WIDTH - left - RIGHT)

    title = keys["title"][0]
    out = [f'  <text class="title" x="20" y="30">{escape(title)}</text>']
    top = 48
    if len(series) > 1:
        x, top = 20, 70
        for i, name in enumerate(series):
            width = 40 + 7.4 * len(name)
            if x + width > WIDTH - 20:
                x, top = 20, top + 22
            out.append("  " + mark(i, x + 6, top - 17, f"s{i}"))
            out.append(f'  <text x="{x + 18:.1f}" y="{top - 12}">{escape(name)}</text>')
            x += width
    bottom = top + ROW * len(names) + 6
    for place in places:
        x = across(place)
        style = "one" if "divide" in keys and place == 1 else "line"
        out.append(f'  <path class="{style}" d="M{x:.1f} {top}V{bottom}"/>')
        words = f"{place:,.6g}".replace(",", "\u202f")
        out.append(
            f'  <text class="note" x="{x:.1f}" y="{bottom + 17}" text-anchor="middle">'
            f"{words}</text>"
        )
    for i, name in enumerate(names):
        y = top + ROW * (i + 0.5) + 3
        out.append(f'  <path class="line" d="M{left:.1f} {y:.1f}H{WIDTH - RIGHT}"/>')
        out.append(
            f'  <text x="{left - 12:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{escape(name)}</text>'
        )
        for j, one in enumerate(series):
            if (name, one) not in values:
                continue
            x = across(values[name, one])
            if bars:
                out.append(
                    f'  <rect class="s{j}" x="{left:.1f}" y="{y - 7:.1f}" '
                    f'width="{x - left:.1f}" height="14"/>'
                )
            else:
                out.append("  " + mark(j, x, y, f"s{j}"))
    height = bottom + 28
    if "left" in keys:
        for words, x, anchor in (
            ("← " + keys["left"][0], left, "start"),
            (keys["right"][0] + " →", WIDTH - RIGHT, "end"),
        ):
            out.append(
                f'  <text class="note" x="{x:.1f}" y="{bottom + 37}" text-anchor="{anchor}">'
                f"{escape(words)}</text>"
            )
        height += 20
    light = "".join(f"\n    .s{i} {{ fill: {c}; }}" for i, c in enumerate(LIGHT))
    dark = "".join(f"\n      .s{i} {{ fill: {c}; }}" for i, c in enumerate(DARK))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"  <title>{escape(title)}</title>\n  <style>{STYLE}{light}\n"
        f"    @media (prefers-color-scheme: dark) {{{STYLE_DARK}{dark}\n    }}\n  </style>\n"
        f'  <rect class="page" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>\n'
    )
    return head + "\n".join(out) + "\n</svg>\n"


def plots():
    """(file, SVG) of every plot."""
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text()
        for match in PLOT.finditer(text):
            keys = {}
            for line in match["keys"].splitlines():
                key, value = line.split(": ", 1)
                keys.setdefault(key, []).append(value)
            yield (page.parent / keys["file"][0]).resolve(), draw(text, keys)


def main():
    match sys.argv[1:]:
        case []:
            for file, svg in plots():
                file.write_text(svg)
        case ["--check"]:
            old = [
                file.name for file, svg in plots() if not file.exists() or file.read_text() != svg
            ]
            if old:
                names = ", ".join(old)
                sys.exit(f"{names}: not the plot of its table; benches/plot.py draws it again")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
