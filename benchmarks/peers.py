"""Measures an update of pre-training side by side with keras-hub and transformers.

    python -m benchmarks.peers --peers_python=peers/bin/python [--dtype=mixed_bfloat16]
    python -m benchmarks.peers --peers_python=peers/bin/python --backends=jax \\
        --device=cuda --systems="transformers SDPA,transformers compiled"

Every system is a process of its own, with the same shape, batch, precision, dropout and
optimizer, gradients clipped at a norm of 1. They take turns, one update each. keras-hub
has no next-sentence loss; transformers computes both. The second command needs no
TensorFlow.
"""

import dataclasses
import json
import os

import command_line
import options
from training.run import program_cache
from benchmarks import flop, turns
from errors import UserError

# Name -> what `peers_theirs.py` is asked for. "Everywhere" projects every position on the
# vocabulary, as transformers' own model does; the others only the predicted ones.
THEIRS = {
    "keras-hub": {"system": "keras_hub", "jit": False},
    "keras-hub XLA": {"system": "keras_hub", "jit": True},
    "transformers eager": {"system": "transformers", "attention": "eager"},
    "transformers SDPA": {"system": "transformers", "attention": "sdpa"},
    "transformers compiled": {
        "system": "transformers",
        "attention": "sdpa",
        "compile": True,
    },
    "transformers everywhere": {
        "system": "transformers",
        "attention": "sdpa",
        "everywhere": True,
    },
}


# Keras's backend, or TensorFlow's with updates compiled by XLA -> our name there.
OURS = {"tensorflow": "ours", "xla": "ours, XLA", "jax": "ours, JAX"}


@dataclasses.dataclass(frozen=True)
class Options(flop.Sizes):
    peers_python: str | None = options.field(
        None, help="Python with keras-hub and transformers; without it, ours alone."
    )
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    rounds: int = options.field(9, help="Updates of each; medians are printed.")
    systems: list[str] = options.field([], help=f"Only these of {', '.join(THEIRS)}.")
    backends: list[str] = options.field(
        ["tensorflow"],
        help="Keras's, for ours: tensorflow, jax and xla, which is TensorFlow with updates "
        "compiled by XLA.",
    )
    device: str = options.field(
        "cpu",
        choices=("cpu", "cuda"),
        help="Of transformers; JAX takes a GPU if it can.",
    )
    warm_up: int = options.field(3, help="Updates before those that are timed.")
    xla_cache_dir: str | None = options.field(
        None,
        help="Folder for compiled programs of TensorFlow; by default, none is kept.",
    )
    json_file: str | None = options.field(None, help="Also writes the table there.")
    serve: bool = options.field(False, help="Used by the processes that it starts.")

    def __post_init__(self):
        super().__post_init__()
        for flag, names in (("systems", THEIRS), ("backends", OURS)):
            for name in getattr(self, flag):
                if name not in names:
                    raise UserError(f"--{flag}: {name!r} is none of {', '.join(names)}")


def _ours(chosen: Options) -> None:
    if chosen.backends == ["jax"]:
        os.environ["KERAS_BACKEND"] = "jax"  # command lines set TensorFlow
        from benchmarks import step_jax

        update = step_jax.updater(chosen, chosen.dtype, chosen.warm_up)
        turns.answer(lambda count: update(count or 1))
        return
    # Before TensorFlow is loaded.
    program_cache.keep_programs(chosen.xla_cache_dir or program_cache.NONE)
    from benchmarks import training

    xla = chosen.backends == ["xla"]
    update = training.updater(chosen, chosen.dtype, xla, warm_up=chosen.warm_up)

    def turn(count):
        update(count or 1)
        return training.device_memory()

    turns.answer(turn)


def commands(chosen: Options) -> dict[str, tuple]:
    """Name -> arguments of `turns.Waiting` for the systems that are chosen."""
    found = {}
    for backend in chosen.backends:
        changes = {"serve": True, "backends": [backend]}
        ours = turns.command("benchmarks.peers", chosen, **changes)
        found[OURS[backend]] = (ours, os.environ)
    if chosen.peers_python:
        for name, how in THEIRS.items():
            if not chosen.systems or name in chosen.systems:
                script = [chosen.peers_python, "-m", "benchmarks.peers_theirs"]
                settings = json.dumps(dataclasses.asdict(chosen) | how)
                found[name] = ([*script, settings], os.environ)
    return found


def main(chosen: Options) -> None:
    """Prints the table."""
    if chosen.serve:
        _ours(chosen)
        return
    systems = turns.started(commands(chosen))
    figures = turns.take(systems, chosen.rounds)
    for system in systems.values():
        system.end()
    print(
        f"{chosen.num_hidden_layers} layers of {chosen.hidden_size}, batch "
        f"{chosen.batch_size}, {chosen.max_seq_length} tokens, {chosen.dtype}"
    )
    print(turns.table(figures, {"GB": turns.peak}))
    turns.write(chosen.json_file, dataclasses.asdict(chosen), figures)


if __name__ == "__main__":
    command_line.run(main, Options)
