"""Reads what spans of files hold, for the tests of all formats."""

from text.corpus import formats
from text.corpus.formats import TextOptions


def documents(spans, counts=None, **given) -> list[list[str]]:
    """Lists of sentences; one that is empty behind each document that ends."""
    found, chosen = [[]], TextOptions(**given)
    for span in spans:
        for sentence in formats.read(span, chosen, counts):
            if sentence is None:
                found.append([])
            else:
                found[-1].append(sentence)
    return found
