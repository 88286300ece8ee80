#!/usr/bin/env python3
"""Writes manual pages and completions for bash from the --help of programs.

usage: release/pages.py FOLDER NAME=PROGRAM... (or the path of a program, which has its own name)

`mortonnet` has the commands bench and tune: a page and completions each, too. A line of --help that
is no option stands in the manual as it is. The date in the pages is SOURCE_DATE_EPOCH.
"""

import collections
import os
import re
import subprocess
import sys
import time
from pathlib import Path

OPTION = re.compile(
    r"^ {2}(?:-(?P<letter>\w), | {4})--(?P<name>[\w-]+)(?P<value>\[=\w+\]| [A-Z][\w.]*)?(?: "
    r"+|$)(?P<text>.*)$"
)
FILES = re.compile(r"FILE(\.\w+)?|DIR|F|MODEL")
"""Values that stand for files and folders."""


def help_of(program, word):
    return subprocess.run(
        [program, *([word] if word else []), "--help"], check=True, capture_output=True, text=True
    ).stdout


def read(text):
    """(options, the other lines): options have letter, name, value, text, choices."""
    options, others = [], []
    for line in text.splitlines():
        found = OPTION.match(line)
        if found:
            options.append(dict(found.groupdict(), choices=[]))
            options[-1]["value"] = options[-1]["value"] or ""
            others.append(options[-1])
        else:
            others.append(line)
    for option in options:
        # "…: a | b | c  [default]". Names in capitals stand for other values.
        choices = re.search(r": (\S+(?: \| \S+)+)(?:  \[.*\])?$", option["text"])
        if choices:
            option["choices"] = [
                word
                for word in choices[1].split(" | ")
                if word.islower() and word.replace("_", "").isalnum()
            ]
    return options, others


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def manual(name, command, text):
    """The manual page of a command, in the macros of man."""
    title = "-".join(filter(None, (name, command)))
    _, lines = read(text)
    date = time.strftime(
        "%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time())))
    )
    about = {
        "mortonnet": "runs the neural network that is in it",
        "mortonnet-bake": "puts a network into a finished program",
        "mortonnet-bench": "checks and times kernels and networks",
        "mortonnet-tune": "finds the fastest plan for a device",
    }
    page = [
        f".TH {title.upper()} 1 {date} mortonnet",
        ".SH NAME",
        f"{escaped(title)} \\- {about[title]}",
        ".SH SYNOPSIS",
        ".nf",
    ]
    rest = iter(lines)
    for line in rest:
        if not line:
            break
        page.append(escaped(line))
    page.append(".fi")
    page.append(".SH DESCRIPTION")
    plain = False
    for line in rest:
        if isinstance(line, dict):
            if plain:
                page.append(".fi")
            plain = False
            letter = f"\\fB\\-{line['letter']}\\fR, " if line["letter"] else ""
            value = re.sub(r"[A-Z]\w*", lambda word: f"\\fI{word[0]}\\fR", escaped(line["value"]))
            page += [
                ".TP",
                f"{letter}\\fB\\-\\-{escaped(line['name'])}\\fR{value}",
                escaped(re.sub(r" {2,}", "  ", line["text"])),
            ]
        elif re.fullmatch(r"\w.*:", line):
            if plain:
                page.append(".fi")
            plain = False
            page.append(f".SS {escaped(line[:-1])}")
        else:
            if not plain:
                page += [".PP", ".nf"]
            plain = True
            page.append(escaped(line))
    if plain:
        page.append(".fi")
    return title, "\n".join(page) + "\n"


def completion(name, commands):
    """Completions for bash: options, their choices, files. `commands`: options by word."""
    function = "_" + name.replace("-", "_")
    lines = [
        f"# Completions of {name} for bash; zsh takes them after `autoload bashcompinit && "
        "bashcompinit`.",
        f"{function}() {{",
        '    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command="" w',
        "    COMPREPLY=()",
    ]
    words = [command for command in commands if command]
    if words:
        lines += [
            '    for w in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
            f"        case $w in {'|'.join(words)}) command=$w && break ;; esac",
            "    done",
        ]
    lines.append('    case "$command:$before" in')
    replies = collections.defaultdict(list)
    for command, options in commands.items():
        for option in options:
            names = [f"{command}:--{option['name']}"] + (
                [f"{command}:-{option['letter']}"] if option["letter"] else []
            )
            if not option["value"].startswith(" "):
                continue
            if FILES.fullmatch(option["value"].strip()):
                replies['mapfile -t COMPREPLY < <(compgen -f -- "$word"); '] += names
            elif option["choices"]:
                replies[
                    f'mapfile -t COMPREPLY < <(compgen -W "{" ".join(option["choices"])}" -- '
                    '"$word"); '
                ] += names
            else:
                replies[""] += names
    lines += [f"        {'|'.join(names)}) {reply}return ;;" for reply, names in replies.items()]
    lines += [
        "    esac",
        "    if [[ $word != -* ]]; then",
        '        mapfile -t COMPREPLY < <(compgen -f -- "$word")',
    ]
    if words:
        lines.append(
            f'        [[ -n $command ]] || mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < '
            f'<(compgen -W "{" ".join(words)}" -- "$word")'
        )
    lines += ["        return", "    fi", '    case "$command" in']
    for command, options in commands.items():
        every = " ".join(
            [f"--{o['name']}" for o in options]
            + [f"-{o['letter']}" for o in options if o["letter"]]
        )
        lines.append(
            f'        "{command}") mapfile -t COMPREPLY < <(compgen -W "{every}" -- "$word") ;;'
        )
    lines += ["    esac", "}", f"complete -o filenames -F {function} {name}", ""]
    return "\n".join(lines)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    for argument in sys.argv[2:]:
        name, _, program = argument.rpartition("=")
        name = name or Path(program).name
        commands = {}
        for command in ("", "bench", "tune") if name == "mortonnet" else ("",):
            text = help_of(program, command)
            commands[command] = read(text)[0]
            title, page = manual(name, command, text)
            (folder / f"{title}.1").write_text(page)
        (folder / f"{name}.bash").write_text(completion(name, commands))


if __name__ == "__main__":
    main()
