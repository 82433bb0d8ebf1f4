"""Measures epochs of fine-tuning side by side with transformers, which pads every batch to
its longest row, too.

    python -m benchmarks.peers_fine_tuning --peers_python=peers/bin/python \\
        --model_dir=model --glue_dir=glue --set=CoLA [--dtype=mixed_bfloat16]

Every system is a process of its own with the same pre-trained weights, examples and batch
size. A turn is an epoch over the same examples, batches included, after a first epoch that
is reported apart, because ours compiles a step for each length in it.
"""

import dataclasses
import json
import pathlib
import statistics
import tempfile

import command_line
import options
from training.run import settle
from benchmarks import quality, turns
from errors import UserError

# Name -> settings of `peers_fine_tuning_theirs.py`.
THEIRS = {
    "transformers": {},
    "transformers by length": {"group_by_length": True},
    "transformers compiled": {"group_by_length": True, "compile": True},
}
_SETS = ("RTE", "STS-B", "CoLA", "SST-2")
_MANY_EPOCHS = 100


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    peers_python: str | None = options.field(
        None, help="Python with transformers and PyTorch; without it, ours alone."
    )
    model_dir: str = options.field(
        help="BERT in Hugging Face layout: config.json, model.safetensors, vocab.txt."
    )
    glue_dir: str = options.field(help="Folder of GLUE's sets.")
    set: str = options.field("CoLA", choices=_SETS, help="Which set.")
    num_examples: int = options.field(1600, help="Of its training set, an epoch.")
    batch_size: int = options.field(32, help="Examples per update.")
    dtype: str = options.field("float32", help="float32 or mixed_bfloat16.")
    num_threads: int = options.field(
        0, help="Threads per system; by default, one per core."
    )
    rounds: int = options.field(9, help="Epochs of each; medians are printed.")
    systems: list[str] = options.field(
        ["transformers", "transformers by length"],
        help=f"Which of {', '.join(THEIRS)}; compiling takes minutes.",
    )
    json_file: str | None = options.field(None, help="Also writes all figures there.")
    serve: str = options.field("", help="Used by the processes that it starts.")

    def __post_init__(self):
        super().__post_init__()
        for name in self.systems:
            if name not in THEIRS:
                raise UserError(f"--systems: {name!r} is none of {', '.join(THEIRS)}")
        if self.num_examples % self.batch_size:
            raise UserError(
                f"--num_examples={self.num_examples}: must be a multiple of "
                f"--batch_size={self.batch_size}, so that epochs have equal batches"
            )


def _ours(settings: Options) -> None:
    """Waits to train an epoch, as run_classifier.py does.

    Args:
        settings: `serve` is the folder of the examples.
    """
    import run_classifier
    from training.run import distribution
    from training.finetuning.experiment import Experiment

    model = pathlib.Path(settings.model_dir)
    flags = {
        **quality.SETS[settings.set].our_flags(settings.serve),
        "vocab_file": str(model / "vocab.txt"),
        "bert_config_file": str(model / "config.json"),
        "init_checkpoint": str(model),
        "output_dir": tempfile.mkdtemp(dir=settings.serve),
        "do_train": True,
        "dtype": settings.dtype,
        "train_batch_size": [settings.batch_size],
        "num_train_epochs": [float(_MANY_EPOCHS)],
    }
    flags = run_classifier.Options(**flags)
    model = settle.TrainableModel(flags)
    task = run_classifier.make(model)
    experiment = Experiment(task, model)
    [trial] = flags.trials
    trainer = experiment.trainer(trial)
    experiment.start(experiment.run(), trainer)
    rows = experiment.sets.read("train").file
    updates = len(rows) // settings.batch_size

    def training(part):
        return rows.training(
            settings.batch_size,
            seed=trial.seed,
            num_batches=_MANY_EPOCHS * updates,
            part=part,
        )

    batches = distribution.distribute(trainer.strategy, training)

    def epoch(_):
        trainer.run_updates(batches, updates)

    turns.answer(epoch)


def _commands(flags: Options, folder: str) -> dict[str, tuple]:
    ours = turns.command("benchmarks.peers_fine_tuning", flags, serve=folder)
    environment = turns.with_threads(flags.num_threads)
    commands = {"ours": (ours, environment)}
    settings = {
        **quality.SETS[flags.set].their_settings(pathlib.Path(folder)),
        "model_dir": flags.model_dir,
        "train_batch_size": flags.batch_size,
        "bfloat16": flags.dtype == "mixed_bfloat16",
    }
    for name, how in THEIRS.items() if flags.peers_python else ():
        if name in flags.systems:
            script = [flags.peers_python, "-m", "benchmarks.peers_fine_tuning_theirs"]
            command = [*script, json.dumps(settings | how)]
            commands[name] = (command, environment)
    return commands


def main(flags: Options) -> None:
    """Prints the table."""
    if flags.serve:
        _ours(flags)
        return
    with tempfile.TemporaryDirectory() as folder:
        sizes = (("train", flags.num_examples), ("dev", flags.batch_size))
        for split, number in sizes:
            kind = quality.SETS[flags.set]
            kind.prepare(pathlib.Path(folder), split, flags, number)
        systems = turns.started(_commands(flags, folder))
        first = turns.take(systems, 1)
        figures = turns.take(systems, flags.rounds)
        for system in systems.values():
            system.end()
    print(f"{flags.set}, epochs of {flags.num_examples} examples, {flags.dtype}")
    columns = {
        "examples/s": lambda some: format(
            flags.num_examples / statistics.median(turn["seconds"] for turn in some),
            ".1f",
        ),
        "GB": turns.peak,
    }
    print(turns.table(figures, columns))
    for name, system in systems.items():
        print(
            f"{name}: ready after {system.ready_after:.1f} s, "
            f"first epoch {first[name][0]['seconds']:.1f} s"
        )
    turns.write(flags.json_file, dataclasses.asdict(flags), figures)


if __name__ == "__main__":
    command_line.run(main, Options)
