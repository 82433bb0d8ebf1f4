"""Finds entities in tags of any scheme, and writes tags for entities.

Words of an entity have a tag with a letter and a kind, all others O. `New York Paris` is

    iob1   I-LOC I-LOC B-LOC   B only where an entity follows another of its kind
    iob2   B-LOC I-LOC B-LOC   B at every beginning
    iobes  B-LOC E-LOC S-LOC   E at every end, S for a single word

Entities can be found in tags of any scheme, valid or not; the scheme of tags is the one in
which marking these entities changes the fewest tags.
"""

import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

SCHEMES = ("iob2", "iob1", "iobes")
OUTSIDE = "O"


class Entity(NamedTuple):
    """Words `start` to `stop` of a sentence, excluding `stop`."""

    kind: str
    start: int
    stop: int


def is_tag(text: str) -> bool:
    return text == OUTSIDE or re.fullmatch("[BIES](-.+)?", text) is not None


def hint(text: str) -> str:
    """What to write for a tag of BILOU, for the end of a message."""
    if not re.fullmatch("[LU]-.+", text):
        return ""
    return " (of BILOU, write E- for L- and S- for U-)"


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities that tags mark, as conlleval reads them.

    An entity also begins where its tag says that it continues, but nothing of its kind
    precedes it.

    Source: the CoNLL-2000 shared task's conlleval, for I and B.
    """
    marked = []
    start, open_kind, ended = 0, None, False
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, _, kind = tag.partition("-")  # B-LOC, or B where there is one kind only
        goes_on = letter in ("I", "E") and kind == open_kind and not ended
        if not goes_on:
            if open_kind is not None:
                marked.append(Entity(open_kind, start, place))
            start, open_kind = place, None if letter == OUTSIDE else kind
        ended = letter in ("E", "S")
    return marked


def strict_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of IOB2 tags that begin with B, as seqeval's strict mode reads them.

    Source: chakki-works/seqeval@v1.2.2 seqeval/scheme.py, IOB2.
    """
    begun = [place for place, tag in enumerate(tags) if tag.startswith("B")]
    marked = []
    for start in begun:
        kind = tags[start].partition("-")[2]
        inside = f"I-{kind}" if kind else "I"
        stop = start + 1
        while stop < len(tags) and tags[stop] == inside:
            stop += 1
        marked.append(Entity(kind, start, stop))
    return marked


def mark(marked: Iterable[Entity], length: int, scheme: str) -> list[str]:
    """The tags of `length` words; entities in the order of the text."""
    tags = [OUTSIDE] * length
    before = None
    for entity in marked:
        kind, start, stop = entity
        letters = ["I"] * (stop - start)
        follows = before is not None and (before.kind, before.stop) == (kind, start)
        if scheme != "iob1" or follows:
            letters[0] = "B"
        if scheme == "iobes":
            letters[-1] = "S" if stop - start == 1 else "E"
        tags[start:stop] = [f"{a}-{kind}" if kind else a for a in letters]
        before = entity
    return tags


def labels_of(kinds: Iterable[str]) -> list[str]:
    """The tags of the scheme iob2 for these types: O, then B and I of each."""
    marks = (mark([Entity(kind, 0, 2)], 2, "iob2") for kind in kinds)
    return [OUTSIDE, *itertools.chain.from_iterable(marks)]


def faults(tags: Sequence[str], scheme: str) -> list[int]:
    """The words whose tags the scheme does not allow there."""
    proper = mark(entities(tags), len(tags), scheme)
    return [i for i, (a, b) in enumerate(zip(tags, proper, strict=True)) if a != b]


def detect(sequences: Iterable[Sequence[str]]) -> str:
    """The scheme with the fewest faults."""
    counts = dict.fromkeys(SCHEMES, 0)
    for tags in sequences:
        for scheme in SCHEMES:
            counts[scheme] += len(faults(tags, scheme))
    return min(SCHEMES, key=counts.get)
