"""The table of what graphs had: each operation with its attributes, ranks and types."""

import collections


def entries(hits):
    """The entries of these hits, with one for each operation that had only constants."""
    hits = set(hits)
    folded = {op for op, _, rank, _ in hits if rank == "constant"}
    return hits | {(op, "constant", "", "") for op in folded}


def print_table(hits, modules):
    """Prints a line for each operation and attribute; returns the entries without a hit."""
    ranks, kinds = (
        collections.defaultdict(collections.Counter),
        collections.defaultdict(collections.Counter),
    )
    types = collections.defaultdict(collections.Counter)
    sets = collections.defaultdict(collections.Counter)
    for (op, tag, rank, kind), count in hits.items():
        if tag == "type":
            types[op][kind] += count
        elif tag.startswith("set "):
            sets[op][tag[4:]] += count
        else:
            ranks[op, tag][rank] += count
            kinds[op, tag][kind] += count
    for op, tag in sorted(ranks):
        cells = lambda c: ", ".join(f"{k or '-'}: {n}" for k, n in sorted(c.items(), key=str))
        print(f"{op:22} {tag:34} ranks {cells(ranks[op, tag]):44} types {cells(kinds[op, tag])}")
    for op in sorted(sets):
        print(
            f"{op:22} sets "
            + ", ".join(f"{k}: {n}" for k, n in sorted(sets[op].items(), key=lambda i: int(i[0])))
        )
    found = entries(hits)
    empty = [wanted for m in modules for wanted in m.promised() if wanted not in found]
    for wanted in empty:
        print("no hit:", *wanted)
    print(
        f"{len(ranks)} operations with an attribute, {len(hits)} entries, {len(empty)} of those "
        "that are expected without a hit"
    )
    return len(empty)
