"""Predicts the words that [MASK] hides with a pre-trained encoder.

    python fill_mask.py --init_checkpoint=pretraining_output --vocab_file=vocab/vocab.txt \\
        --text='Returns the [MASK] of the list.'
"""

import dataclasses
import sys

import numpy as np

import command_line
import options
from errors import count
from files import inputs
from training.queries.options import QueryOptions


@dataclasses.dataclass(frozen=True)
class Options(QueryOptions):
    init_checkpoint: str = options.field(
        help="A checkpoint with a masked-LM head: prefix, directory or "
        "hf://organization/name[@revision]."
    )
    text: str | None = options.field(
        None, help="A text with [MASK]; by default, lines are read from standard input."
    )
    top_k: int = options.field(
        5, help="Number of tokens to list for each [MASK].", at_least=1
    )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.queries import mask_filling


def main(flags: Options) -> None:
    tokenizer, config, model = mask_filling.load(flags)
    vocabulary = tokenizer.vocabulary
    lines = [flags.text]
    if flags.text is None:
        lines = inputs.lines(inputs.STANDARD_INPUT, max_line_mb=flags.max_line_mb)
    skipped = 0
    for number, line in enumerate(lines, start=1):
        if flags.text is None and vocabulary.mask not in line:
            skipped += bool(line.strip())
            continue
        row = mask_filling.encode(tokenizer, line, config, f"text {number}")
        probabilities = mask_filling.probabilities(model, *row)
        _print(line.strip(), probabilities, vocabulary, flags.top_k)
    if skipped:
        print(
            f"skipped {count(skipped, 'line')} without {vocabulary.mask}",
            file=sys.stderr,
        )


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
    command_line.run(main, Options)
