"""A network small enough for tests, and the files that scripts want of it."""

import pathlib
from collections.abc import Iterable

from modeling import layers
from modeling.architectures.bert import BertConfig
from text.tokenizers.vocabulary import SPECIAL_TOKENS


def config(**changes) -> BertConfig:
    sizes = {
        "vocab_size": 40,
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": 40,
        "type_vocab_size": 2,
    }
    return BertConfig(**sizes | changes)


class NothingDropped(layers.Dropouts):
    """With it, a network trains, but drops nothing."""

    def __init__(self):
        super().__init__([0, 0])

    def __call__(self, x, rate):
        return x

    def key(self, rate):
        return ()


def write(folder: pathlib.Path, words: Iterable[str], config: BertConfig) -> None:
    """Writes vocab.txt, the special tokens first, and config.json."""
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *words])
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    (folder / "config.json").write_text(config.to_json_string())
