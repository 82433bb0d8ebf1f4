"""ALBERTs that are written for transformers, with the heads that they are tried with."""

import dataclasses

from family.albert.encoder import AlbertConfig
from tests.training.interchange.test_transformers import TINY

_SQUARE = AlbertConfig(**TINY, embedding_size=TINY["hidden_size"])
WRITTEN = {
    "albert": (
        AlbertConfig(**TINY, embedding_size=8, num_hidden_groups=2),
        ("classification", "choice", "tagging", "span"),
    ),
    # Which Hugging Face projects nevertheless.
    "square": (_SQUARE, ("classification",)),
    "projected": (
        dataclasses.replace(_SQUARE, projects_embeddings=True),
        ("classification",),
    ),
}
