"""The command line: `python -m mortonnet bake …` is mortonnet-bake."""

import os
import sys

from .baking import NAME, tool

PAGE = """\
python -m mortonnet bake MODEL -o FILE [OPTION]...   write a program that runs the network of MODEL

`python -m mortonnet bake --help` has all options. In Python: help("mortonnet").
"""


def main():
    arguments = sys.argv[1:]
    if arguments in (["-h"], ["--help"]):
        print(PAGE, end="")
    elif arguments in (["-V"], ["--version"]) or arguments[:1] == ["bake"]:
        program = tool()
        sys.stdout.flush()
        os.execv(program, [NAME, *arguments[arguments[0] == "bake" :]])
    else:
        found = f"found {arguments[0]!r}" if arguments else "found nothing"
        print(
            f"mortonnet: expected the word bake, {found}; see python -m mortonnet --help",
            file=sys.stderr,
        )
        sys.exit(2)


if __name__ == "__main__":
    try:
        main()
    except OSError as e:
        sys.exit(f"mortonnet: {e}")
