"""Finds the TensorFlow graph that does the same as a tokenizer.

Which one it is, a row of text/tokenizers/table.py says.
"""

import pkgutil

from text.graphs.graph_tokenizer import GraphTokenizer
from text.tokenizers import table
from text.tokenizers.tokenizer import Tokenizer


def graph_of(tokenizer: Tokenizer, folder: str) -> GraphTokenizer:
    """A tokenizer as a graph.

    Args:
        folder: where to write its vocabulary; a SavedModel includes the files.
    """
    kind = table.kind_of_tokenizer(tokenizer)
    return pkgutil.resolve_name(kind.graph)(tokenizer, folder)


def libraries_of(tokenizer: Tokenizer) -> tuple[str, ...]:
    """See `GraphTokenizer.libraries`."""
    return pkgutil.resolve_name(table.kind_of_tokenizer(tokenizer).graph).libraries
