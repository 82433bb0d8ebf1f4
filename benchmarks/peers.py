"""Measures an update of pre-training side by side with keras-hub and transformers.

python -m benchmarks.peers --peers_python=peers/bin/python [--dtype=mixed_bfloat16]

Every system is a process of its own, with the same shape, batch, precision, dropout and
optimizer, gradients clipped at a norm of 1. They take turns, one update each. keras-hub
has no next-sentence loss; transformers computes both.
"""

import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys
import tempfile

import options
from benchmarks import peers_theirs
from text.errors import UserError

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


@dataclasses.dataclass(frozen=True)
class Options:
    peers_python: str | None = options.field(
        None, help="Python with keras-hub and transformers; without it, ours alone."
    )
    num_hidden_layers: int = options.field(4, help="Layers.")
    hidden_size: int = options.field(256, help="Width; 64 per attention head.")
    vocab_size: int = options.field(30522, help="Size of the vocabulary.")
    batch_size: int = options.field(32, help="Examples per update.")
    max_seq_length: int = options.field(128, help="Tokens per example.")
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    rounds: int = options.field(9, help="Updates of each; medians are printed.")
    systems: list[str] = options.field((), help=f"Only these of {', '.join(THEIRS)}.")
    json_file: str | None = options.field(None, help="Also writes the table there.")
    serve: bool = options.field(False, help="Used by the processes that it starts.")

    def __post_init__(self):
        for name in self.systems:
            if name not in THEIRS:
                raise UserError(f"--systems: {name!r} is none of {', '.join(THEIRS)}")


def _ours(chosen: Options) -> None:
    from benchmarks import training

    names = {field.name for field in dataclasses.fields(training.Options)}
    given = dataclasses.asdict(chosen)
    sizes = training.Options(**{name: given[name] for name in names & given.keys()})
    peers_theirs.answer(training.updater(sizes, chosen.dtype, xla=False))


class _System:
    """A process that waits to run an update."""

    def __init__(self, command: list[str]):
        self.messages = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.messages,
            text=True,
        )
        self.figures: list[dict] = []

    def answer(self):
        """The next line of JSON, or None if the process ended."""
        for line in self.process.stdout:
            with contextlib.suppress(ValueError):
                return json.loads(line)
        return None

    def update(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        figure = self.answer()
        if figure is None:
            raise UserError(f"a system ended: {self.last_message()}")
        self.figures.append(figure)

    def last_message(self) -> str:
        self.messages.seek(0)
        return (self.messages.read().strip().splitlines() or [""])[-1]

    def end(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def _commands(chosen: Options) -> dict[str, list[str]]:
    given = dataclasses.asdict(chosen)
    for name in ("peers_python", "rounds", "systems", "json_file", "serve"):
        del given[name]
    ours = [sys.executable, "-m", "benchmarks.peers", "--serve"]
    commands = {"ours": ours + options.words(**given)}
    if chosen.peers_python:
        for name, how in THEIRS.items():
            if not chosen.systems or name in chosen.systems:
                settings = json.dumps(given | how)
                script = "benchmarks/peers_theirs.py"
                commands[name] = [chosen.peers_python, script, settings]
    return commands


def _table(systems: dict[str, _System]) -> list[dict]:
    rows = []
    ours = None
    for name, system in systems.items():
        seconds = sorted(figure["seconds"] for figure in system.figures)
        median = statistics.median(seconds)
        ours = ours or median
        rows.append(
            {
                "system": name,
                "seconds": median,
                "fastest": seconds[0],
                "slowest": seconds[-1],
                "times_ours": median / ours,
                "bytes": system.figures[-1]["bytes"],
            }
        )
    return rows


def main(chosen: Options) -> None:
    """Prints the table."""
    if chosen.serve:
        _ours(chosen)
        return
    systems = {}
    for name, command in _commands(chosen).items():  # one at a time: they compile
        system = _System(command)
        if system.answer() is None:
            print(f"{name} does not run: {system.last_message()}", file=sys.stderr)
            continue
        systems[name] = system
    for _ in range(chosen.rounds):
        for system in systems.values():
            system.update()
    rows = _table(systems)
    for system in systems.values():
        system.end()
    print(
        f"{chosen.num_hidden_layers} layers of {chosen.hidden_size}, batch "
        f"{chosen.batch_size}, {chosen.max_seq_length} tokens, {chosen.dtype}"
    )
    print(f"{'':26} {'ms':>6} {'fastest to slowest':>19} {'times ours':>10} {'GB':>6}")
    for row in rows:
        spread = f"{row['fastest'] * 1000:.0f} to {row['slowest'] * 1000:.0f}"
        print(
            f"{row['system']:26} {row['seconds'] * 1000:6.0f} {spread:>19} "
            f"{row['times_ours']:10.2f} {row['bytes'] / 1e9:6.2f}"
        )
    if chosen.json_file:
        with open(chosen.json_file, "w") as file:
            json.dump({"settings": dataclasses.asdict(chosen), "rows": rows}, file)


if __name__ == "__main__":
    options.run(main, Options)
