"""Measures create_pretraining_data.py side by side with `tokenizers` and `datasets`.

    python -m benchmarks.peers_generation --peers_python=peers/bin/python \\
        --input_file='novels/*.txt' --vocab_file=vocab.txt

Every turn is a whole command on the same text. Ours ends with masked records on disk;
theirs keeps rows without masks on disk and masks them in the batches of an epoch, as in
training (see `peers_generation_theirs.py`). With --dupe_factor=5, ours writes five passes
over the text, and theirs goes through five epochs.
"""

import dataclasses
import json
import os
import statistics
import sys
import tempfile

import command_line
import options
from benchmarks import turns
from errors import UserError
from files import inputs

# Name -> flags of create_pretraining_data.py, or settings of the other side. Without
# num_proc, tokenizers uses a thread per core; with it, each process has one.
OURS = {
    "ours": [],
    "ours full sentences": ["--instances=full_sentences"],
}
THEIRS = {
    "datasets": {"num_proc": None, "pairs": False},
    "datasets num_proc=2": {"num_proc": 2, "pairs": False},
    "datasets pairs": {"num_proc": None, "pairs": True},
}


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    input_file: list[str] = options.field(help="Text files.")
    vocab_file: str = options.field("vocab/vocab.txt", help="The vocabulary.")
    peers_python: str = options.field(
        help="Python with transformers, datasets and PyTorch."
    )
    max_seq_length: int = options.field(128, help="Tokens per row.")
    max_predictions_per_seq: int = options.field(20, help="Predictions, for ours.")
    dupe_factor: int = options.field(1, help="Passes over the text, or epochs.")
    rounds: int = options.field(9, help="Commands of each; medians are printed.")
    systems: list[str] = options.field(
        [], help=f"Only these of {', '.join((*OURS, *THEIRS))}."
    )
    json_file: str | None = options.field(None, help="Also writes all figures there.")

    def __post_init__(self):
        super().__post_init__()
        for name in self.systems:
            if name not in OURS | THEIRS:
                raise UserError(
                    f"--systems: {name!r} is none of {', '.join(OURS | THEIRS)}"
                )


def _ours(settings: Options, flags: list[str], folder: str) -> turns.Command:
    written = os.path.join(folder, "records")
    command = [sys.executable, "create_pretraining_data.py", "--overwrite", *flags]
    command += options.words(
        input_file=settings.input_file,
        input_format="files",
        output_file=written,
        vocab_file=settings.vocab_file,
        max_seq_length=settings.max_seq_length,
        max_predictions_per_seq=settings.max_predictions_per_seq,
        dupe_factor=settings.dupe_factor,
    )

    def counts_of_records(_):
        with open(f"{written}.description.json", encoding="utf-8") as file:
            counts = json.load(file)["counts"]
        os.remove(written)
        os.remove(f"{written}.description.json")
        return {"instances": counts["instances"], "tokens": counts["instance_tokens"]}

    return turns.Command(command, counts_of_records)


def _theirs(flags: Options, how: dict) -> turns.Command:
    settings = how | {
        "input_files": inputs.expand(flags.input_file),
        "vocab_file": flags.vocab_file,
        "max_seq_length": flags.max_seq_length,
        "dupe_factor": flags.dupe_factor,
    }
    script = [flags.peers_python, "-m", "benchmarks.peers_generation_theirs"]
    return turns.Command([*script, json.dumps(settings)], turns.last_json)


def _systems(settings: Options, folder: str) -> dict[str, turns.Command]:
    systems = {name: _ours(settings, flags, folder) for name, flags in OURS.items()}
    systems |= {name: _theirs(settings, how) for name, how in THEIRS.items()}
    return {
        name: system
        for name, system in systems.items()
        if not settings.systems or name in settings.systems
    }


def _per_second(key):
    return lambda figures: format(
        statistics.median(turn[key] / turn["seconds"] for turn in figures), ",.0f"
    )


def _stages(figures):
    medians = {
        stage: statistics.median(turn["stages"][stage] for turn in figures)
        for stage in figures[0]["stages"]
    }
    return ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in medians.items())


def main(flags: Options) -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as folder:
        systems = _systems(flags, folder)
        figures = turns.take(systems, flags.rounds)
    size = sum(map(os.path.getsize, inputs.expand(flags.input_file)))
    print(f"{size / 1e6:.1f} MB of text, rows of {flags.max_seq_length} tokens")
    columns = {"rows/s": _per_second("instances"), "tokens/s": _per_second("tokens")}
    print(turns.table(figures, columns))
    turns.write(flags.json_file, dataclasses.asdict(flags), figures)
    for name, some in figures.items():
        if "stages" in some[0]:
            print(f"{name}: {_stages(some)}")
    for turn in (turn for some in figures.values() for turn in some):
        turn["seconds"] -= turn.get("stages", {}).get("imports", 0)
    ratios = {row["system"]: row["times_ours"] for row in turns.compare(figures)}
    parts = (f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    print(f"times ours, their imports not counted: {', '.join(parts)}")


if __name__ == "__main__":
    command_line.run(main, Options)
