"""Predicts the words that [MASK] hides with a pre-trained encoder.

    python fill_mask.py --init_checkpoint=pretraining_output --vocab_file=vocab/vocab.txt \\
        --text='Returns the [MASK] of the list.'
"""

import dataclasses
import sys

import numpy as np

import options
from errors import UserError
from text.files import inputs
from text.tokenizers.kinds import TokenizerOptions


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions):
    init_checkpoint: str = options.field(
        help="A checkpoint with a masked-LM head: prefix or directory."
    )
    vocab_file: str | None = options.field(
        None, help="The vocabulary; by default, the one next to the weights."
    )
    bert_config_file: str | None = options.field(
        None,
        help="The architecture; by default, bert_config.json next to the weights, or the "
        "config.json of a Hugging Face model.",
    )
    text: str | None = options.field(
        None, help="A text with [MASK]; by default, lines are read from standard input."
    )
    top_k: int = options.field(5, help="Number of tokens to list for each [MASK].")

    def __post_init__(self):
        if self.top_k < 1:
            raise UserError(f"--top_k={self.top_k}: must be at least 1")


if __name__ == "__main__":
    options.parse(Options)  # --help and mistakes are answered before TensorFlow loads

from training.queries import mask_filling
from text.instances import packing
from text.tasks import masks


def main(given: Options) -> None:
    tokenizer, config, model = mask_filling.load(given)
    vocabulary = tokenizer.vocabulary
    lines = [given.text]
    if given.text is None:
        lines = inputs.lines(inputs.STANDARD_INPUT)
    skipped = 0
    for number, line in enumerate(lines, start=1):
        if given.text is None and vocabulary.mask not in line:
            skipped += bool(line.strip())
            continue
        row = _encode(tokenizer, line, config, number)
        probabilities = _predict(model, *row)
        _print(line.strip(), probabilities, vocabulary, given.top_k)
    if skipped:
        print(
            f"{skipped} lines without {vocabulary.mask} were skipped", file=sys.stderr
        )


def _encode(tokenizer, text, config, number):
    """Ids with [CLS] and [SEP], their segments, and the positions of [MASK]."""
    vocabulary = tokenizer.vocabulary
    ids, segments = packing.join(vocabulary, masks.encode(tokenizer, text))
    positions = [i for i, id in enumerate(ids) if id == vocabulary.mask_id]
    if not positions:
        raise UserError(
            f"text {number}: no {vocabulary.mask} in {text.strip()[:60]!r}; add one"
        )
    if len(ids) > config.max_position_embeddings:
        raise UserError(
            f"text {number}: {len(ids)} tokens, but the model has only "
            f"{config.max_position_embeddings} positions; shorten it"
        )
    return ids, segments, positions


def _predict(model, ids, segments, positions):
    """float64 [masks, vocab_size]: probabilities of the tokens."""
    batch = {
        "input_ids": np.array([ids], np.int32),
        "segment_ids": np.array([segments], np.int32),
        "masked_lm_positions": np.array([positions], np.int32),
    }
    logits = np.asarray(model(batch)["masked_lm_logits"][0], np.float64)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def _print(text, probabilities, vocabulary, top_k):
    print(text)
    for row in probabilities:
        # vocab_size may be larger than the vocabulary.
        best = np.argsort(-row[: len(vocabulary)])[:top_k]
        print(
            f"  {vocabulary.mask}: "
            + "  ".join(f"{vocabulary.tokens[id]} {row[id]:.1%}" for id in best)
        )


if __name__ == "__main__":
    options.run(main, Options)
