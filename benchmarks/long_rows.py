"""Measures an update of a ModernBERT at growing lengths: packed, padded, and transformers.

    python -m benchmarks.long_rows --peers_python=peers/bin/python [--lengths=512,2048,8192]

Every turn is a process of its own, with the same network, number of places in a batch,
number of predictions and optimizer, and gradients clipped at a norm of 1; one update is
timed after others. "whole" are rows of one document each; "packed" are rows of several,
which do not see each other; "padded" are as many rows of one of these documents each, so
most of their places are empty. transformers reads whole rows, with torch's SDPA.
"""

import dataclasses
import json
import statistics

import command_line
import options
from benchmarks import turns

THEIRS = "transformers SDPA"
OURS = ("whole", "packed", "padded")


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    peers_python: str | None = options.field(
        None, help="Python with transformers; without it, ours alone."
    )
    lengths: list[str] = options.field(
        ["512", "2048", "8192"], help="Places of a row, one table for each."
    )
    places: int = options.field(8192, help="Places of a batch.")
    document: int = options.field(400, help="Tokens of a document, in the median.")
    num_hidden_layers: int = options.field(4, help="Layers.")
    hidden_size: int = options.field(256, help="Width; 64 per attention head.")
    vocab_size: int = options.field(50368, help="Size of the vocabulary.")
    share: float = options.field(0.3, help="Of the places that are predicted.")
    rounds: int = options.field(5, help="Turns of each; medians are printed.")
    num_threads: int = options.field(
        1, help="Of each process; 0 leaves that to the libraries."
    )
    warm_up: int = options.field(2, help="Updates before those that are timed.")
    json_file: str | None = options.field(None, help="Also writes the tables there.")
    serve: str | None = options.field(
        None, help="Used by the processes that it starts."
    )


def commands(chosen: Options, length: int) -> dict[str, tuple]:
    """Name -> arguments of `turns.Waiting`."""
    found, environment = {}, turns.with_threads(chosen.num_threads)
    for kind in OURS:
        changes = {"serve": kind, "lengths": [length]}
        line = turns.command("benchmarks.long_rows", chosen, **changes)
        found[kind] = (line, environment)
    if chosen.peers_python:
        line = [chosen.peers_python, "-m", "benchmarks.long_rows_theirs"]
        settings = dataclasses.asdict(chosen) | {"length": length, "kind": "whole"}
        found[THEIRS] = ([*line, json.dumps(settings)], environment)
    return found


def _answer(chosen: Options) -> None:
    """Runs updates of ours when it is asked to."""
    from training.backend import tf
    from training.run import distribution, loop
    from benchmarks.long_rows_theirs import numbers
    from family.modern_bert.config import ModernBertConfig
    from modeling.objectives.masked_lm import MaskedLM

    [length] = map(int, chosen.lengths)
    settings = dataclasses.asdict(chosen) | {"length": length, "kind": chosen.serve}
    batch = numbers(settings)
    width = chosen.hidden_size
    config = ModernBertConfig(
        vocab_size=chosen.vocab_size,
        hidden_size=width,
        num_hidden_layers=chosen.num_hidden_layers,
        num_attention_heads=width // 64,
        intermediate_size=3 * width // 2,
    )
    objective = MaskedLM()
    trainer = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config),
        objective,
        loop.LoopSettings(1000, 100, 1e-4, batch_size=len(batch["input_ids"])),
    )
    data = tf.data.Dataset.from_tensors(batch).repeat()
    batches = distribution.distribute(trainer.strategy, lambda part: data)
    for _ in range(chosen.warm_up):
        trainer.run_updates(batches, 1)
    tokens = int(batch["input_mask"].sum())

    def turn(request):
        trainer.run_updates(batches, 1)
        return {"tokens": tokens}

    turns.answer(turn)


class _Alone:
    """A system that is started for each turn, so that one at a time takes memory."""

    def __init__(self, *arguments):
        self._arguments = arguments

    def turn(self, request=None) -> dict:
        system = turns.Waiting(*self._arguments)
        figures = system.turn(request)
        system.end()
        return figures


def _speed(figures: list[dict]) -> str:
    return f"{statistics.median(f['tokens'] / f['seconds'] for f in figures):,.0f}"


def main(chosen: Options) -> None:
    """Prints a table for each length."""
    if chosen.serve:
        _answer(chosen)
        return
    measured = {}
    for length in chosen.lengths:
        systems = {k: _Alone(*v) for k, v in commands(chosen, int(length)).items()}
        figures = turns.take(systems, chosen.rounds)
        print(
            f"{chosen.num_hidden_layers} layers of {chosen.hidden_size}, "
            f"{chosen.places // int(length)} rows of {length} places"
        )
        print(turns.table(figures, {"GB": turns.peak, "tokens/s": _speed}), flush=True)
        measured |= {f"{length} {name}": turn for name, turn in figures.items()}
    turns.write(chosen.json_file, dataclasses.asdict(chosen), measured)


if __name__ == "__main__":
    command_line.run(main, Options)
