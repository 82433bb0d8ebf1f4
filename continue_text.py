"""Continues texts with a language model that reads from left to right, such as a GPT.

    python continue_text.py --init_checkpoint=my/gpt --vocab_file=my/vocab.txt \\
        --text='Returns the length of' --num_tokens=20

The most probable token is added again and again. With --temperature, tokens are drawn
instead; the same --seed draws the same ones.
"""

import dataclasses
import sys

import numpy as np

import command_line
import extensions
import options
from errors import UserError
from files import inputs
from training.queries.options import QueryOptions


@dataclasses.dataclass(frozen=True)
class Options(QueryOptions):
    init_checkpoint: str = options.field(
        help="A checkpoint that run_pretraining.py --objective=next_token trained, or "
        "another language model: prefix, directory or hf://organization/name[@revision]."
    )
    text: str | None = options.field(
        None, help="The text to continue; by default, lines from standard input."
    )
    num_tokens: int = options.field(
        40, help="Number of tokens to add, at most.", at_least=1
    )
    temperature: float = options.field(
        0.0,
        help="Draw tokens, from their probabilities at this temperature: 1 takes them as "
        "they are, less prefers the probable ones. 0 takes the most probable token.",
        at_least=0,
    )
    top_k: int = options.field(
        0,
        help="With --temperature: draw from this many of the most probable tokens only. 0 "
        "draws from all.",
        at_least=0,
        only_for={"temperature": options.GIVEN},
    )
    num_samples: int = options.field(
        1,
        help="With --temperature: how many continuations to draw for each text.",
        at_most=10_000,
        at_least=1,
        only_for={"temperature": options.GIVEN},
    )
    seed: int = options.field(12345, help="With --temperature: the seed.", at_least=0)
    start_token: bool = options.field(
        True,
        help="Begin with the token at the start of rows, as models trained here do. false "
        "for one that was trained without it." + extensions.help_of("start_token"),
    )


# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.queries import continuation


def main(flags: Options) -> None:
    tokenizer, config, model = continuation.load(flags)
    vocabulary = tokenizer.vocabulary
    if flags.start_token and not vocabulary.head:
        raise UserError(
            f"{vocabulary.path}: its rows do not begin with a token of their own; pass "
            "--start_token=false"
        )
    start = vocabulary.head if flags.start_token else ()
    ends = {vocabulary.sep_id, vocabulary.end_id}
    allowed = np.ones(len(vocabulary), bool)
    allowed[list({*vocabulary.special_ids.values()} - ends)] = False
    allowed[[not token for token in vocabulary.tokens]] = False
    continuer = continuation.Continuer(
        model, allowed, temperature=flags.temperature, top_k=flags.top_k
    )
    lines = [flags.text]
    if flags.text is None:
        lines = inputs.lines(inputs.STANDARD_INPUT, max_line_mb=flags.max_line_mb)
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        ids = tokenizer.encode(text)
        before = [*start, *ids]
        room = config.max_position_embeddings - len(before)
        if not before:
            raise UserError(
                f"text {number}: has no tokens; add some, or remove --start_token=false"
            )
        if room < 1:
            raise UserError(
                f"text {number}: {len(before)} tokens leave no room for another in "
                f"the model's {config.max_position_embeddings} positions; shorten it"
            )
        if unknown := ids.count(vocabulary.unk_id):
            print(
                f"warning: text {number}: {unknown} of {len(ids)} tokens are not in the "
                "vocabulary, so the model does not see what they are",
                file=sys.stderr,
            )
        more = min(flags.num_tokens, room)
        continuations = continuer.extend(
            before, more, samples=flags.num_samples, seed=flags.seed
        )
        for row in continuations.tolist():
            stop = next((i for i, id in enumerate(row) if id in ends), len(row))
            print(text + _continuation(vocabulary, ids, row[:stop]))


def _continuation(vocabulary, ids, more) -> str:
    """What is written after the text of some ids to add more."""
    return vocabulary.text_of(ids + more)[len(vocabulary.text_of(ids)) :]


if __name__ == "__main__":
    command_line.run(main, Options)
