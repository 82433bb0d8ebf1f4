"""Pre-trains an encoder on masked words and sentence pairs, and evaluates it.

    python run_pretraining.py --do_train --do_eval \\
        --input_file='records/train-*.tfrecord' \\
        --eval_input_file=records/held_out.tfrecord --eval_every_steps=1000 \\
        --bert_config_file=bert_config.json --output_dir=pretraining_output \\
        --num_train_steps=10000 --num_warmup_steps=1000 --learning_rate=1e-4

If a run is killed or interrupted, the same command continues it and ends with the same
weights. The released models were trained for a million updates of 256 records
(arXiv:1810.04805, A.2).
"""

import contextlib
import dataclasses
import functools
import hashlib
import io
import os
import sys
from collections.abc import Callable, Iterator, Mapping

import numpy as np

import options
import training  # noqa: F401  TensorFlow before Keras, so that it is quiet
from modeling.encoders.config import EncoderConfig
from modeling.objectives import masked_lm, pretraining
from serving import export
from text.errors import UserError
from text.files import anywhere
from text.instances.kinds import RowOptions
from text.records import reading
from text.records.descriptions import Description
from text.tokenizers.wordpiece import Tokenizer, TokenizerOptions
from training import distribution, encoder_export, loop, report, run, run_folder

# isort: split
import tensorflow as tf

# At the beginning of every file.
_CHECKED_RECORDS = 16
_COMPARED_BYTES = 1 << 16

_CONTENT = "input_file_sha256"  # a setting of a run

OBJECTIVES = {
    "masked_lm_next_sentence": pretraining.MaskedLMNextSentence,
    "masked_lm": masked_lm.MaskedLM,
}

Described = Mapping[str, Description]  # record file to what is beside it


@dataclasses.dataclass(frozen=True)
class Options(TokenizerOptions, run.RunOptions):
    """The release's flags, then ours."""

    input_file: list[str] = options.field(
        [], help="TFRecord files, plain or gzip: comma-separated names and globs."
    )
    max_predictions_per_seq: int = options.field(
        20, help="Number of masked positions in each record."
    )
    train_batch_size: int = options.field(
        32, help="Records per update, over all replicas and micro-batches."
    )
    learning_rate: float = options.field(5e-5, help="Adam's peak learning rate.")
    num_train_steps: int = options.field(
        100_000, help="Number of updates of the whole run."
    )
    num_warmup_steps: int = options.field(
        10_000, help="Updates over which the learning rate rises."
    )
    max_eval_steps: int = options.field(
        100,
        help="Maximum number of batches per evaluation; records are never repeated.",
    )

    objective: str = options.field(
        "masked_lm_next_sentence",
        choices=tuple(OBJECTIVES),
        help="What to learn. masked_lm leaves the next sentence out.",
    )
    eval_input_file: list[str] = options.field(
        [], help="Held-out records to evaluate on; by default, input_file."
    )
    vocab_file: str | None = options.field(
        None, help="For --do_export: the vocabulary of the records."
    )

    def __post_init__(self):
        if not (self.do_train or self.do_eval or self.do_export):
            raise UserError(
                "nothing to do; give --do_train, --do_eval, --do_export or several"
            )
        if (self.do_train or self.do_eval) and not self.input_file:
            raise UserError("--input_file must be given to train or to evaluate")
        if self.do_export and not self.vocab_file:
            raise UserError("--do_export needs --vocab_file, that of the records")
        self.check_at_least(
            1,
            "max_predictions_per_seq",
            "train_batch_size",
            "num_train_steps",
            "max_eval_steps",
        )
        self.check_at_least(0, "num_warmup_steps")
        if not 0 < self.learning_rate < float("inf"):
            raise UserError(f"--learning_rate={self.learning_rate}: must be above 0")
        if self.eval_every_steps and not self.eval_input_file:
            raise UserError("--eval_every_steps needs held-out --eval_input_file")
        super().__post_init__()

    def files(self) -> list[str]:
        return [*self.input_file, *self.eval_input_file, *super().files()]


# --- Records -------------------------------------------------------------------------


def _read(
    patterns: list[str], described: Described, given: Options, config: EncoderConfig
) -> reading.Records:
    """Opens record files and refuses those that flags or config contradict."""
    for path in reading.find(patterns):
        if path in described:
            _check_description(path, described[path], given, config)
    schema = (
        RowOptions(
            max_seq_length=given.max_seq_length,
            max_predictions_per_seq=given.max_predictions_per_seq,
        )
        .make()
        .schema()
    )
    sizes = dataclasses.asdict(config)
    opened = reading.Records(reading.survey(patterns, described), schema, sizes)
    opened.check(_CHECKED_RECORDS)
    return opened


def _check_vocabularies(
    described: Described, given: Options, tokenizer: Tokenizer | None
) -> None:
    """Raises:
    UserError: the records, as far as they are described, are not of one vocabulary; or
        the tokenizer for the export has another, or other flags.
    """
    vocabularies = {d.vocab_sha256 for d in described.values()}
    if len(vocabularies) > 1:
        raise UserError(
            f"{','.join([*given.input_file, *given.eval_input_file])}: records of "
            f"{len(vocabularies)} different "
            "vocabularies; give files of one, to train and to evaluate on"
        )
    if not tokenizer:
        return
    for path, description in described.items():
        for name, value in tokenizer.settings.items():
            said = description.said(name, value)
            if said != value:
                raise UserError(
                    f"{path}: made with {name}={said}, and the export would have "
                    f"{value}; give the vocabulary and the flags of the records"
                )


def _check_description(path, description, given, config):
    for name in ("max_seq_length", "max_predictions_per_seq"):
        said = description.said(name, getattr(given, name))
        if said != getattr(given, name):
            raise UserError(
                f"{path}: its description says {name}={said}, not "
                f"{getattr(given, name)}; give --{name}={said}"
            )
    if (description.vocab_size or 0) > config.vocab_size:
        raise UserError(
            f"{path}: made with a vocabulary of {description.vocab_size} tokens, more "
            f"than vocab_size={config.vocab_size} of {given.bert_config_file}"
        )


@contextlib.contextmanager
def _blaming(data: reading.Records) -> Iterator[None]:
    """Names the record of `data` with which reading or computing fails inside.

    Raises:
        UserError: names the file and the record.
    """
    try:
        yield
    except reading.ERRORS as error:
        # TensorFlow does not say which record it was. If none is to blame, it was we.
        print(
            f"a record is damaged or does not fit; looking for it among {data.total}",
            file=sys.stderr,
        )
        data.check()
        raise error


# --- The run -------------------------------------------------------------------------


def _identity(given: Options, config: EncoderConfig, data: reading.Records) -> dict:
    """What makes a run this run: with any of it changed, a resume would be another."""
    names = (
        "max_seq_length",
        "max_predictions_per_seq",
        "train_batch_size",
        "learning_rate",
        "num_train_steps",
        "num_warmup_steps",
        "init_checkpoint",
        "dtype",
        "allow_tf32",
        "bias_correction",
        "seed",
        "objective",
    )
    return {
        **{name: getattr(given, name) for name in names},
        **dataclasses.asdict(config),
        "input_file": [[os.path.basename(f.path), f.records] for f in data.files],
        _CONTENT: _digest(data),
    }


def _digest(data: reading.Records) -> str:
    """Of the beginning and the size of each file, which tell records from others."""
    digest = hashlib.sha256()
    for file in data.files:
        with anywhere.access(file.path), tf.io.gfile.GFile(file.path, "rb") as opened:
            digest.update(hashlib.sha256(opened.read(_COMPARED_BYTES)).digest())
            digest.update(b"%d\n" % opened.size())
    return digest.hexdigest()


def _evaluate(trainer: loop.Trainer, given: Options, data: reading.Records) -> dict:
    """Evaluates on each record once, at most on --max_eval_steps batches."""
    # Differs from the release: it repeats a small set until --max_eval_steps, and its
    # loss is a mean over batches, whatever each holds.
    size = given.eval_batch_size
    count = min(given.max_eval_steps, -(-data.total // size))
    with _blaming(data):
        return trainer.evaluate(
            lambda part: data.evaluation(size, max_batches=count, part=part), count
        )


def _train(trainer, given, data, held_out, log) -> None:
    if trainer.progress.step >= given.num_train_steps:
        log.say(f"already finished: {trainer.progress.step} updates are done")
    else:
        _train_on(trainer, given, data, held_out, log)
    # Also of a run that was killed when all but this was done.
    if picture := log.draw():
        log.say(f"finished; curves are in {picture}")


def _train_on(trainer, given, data, held_out, log) -> None:
    size = given.train_batch_size
    log.say(
        f"{data.total} records in {len(data.files)} files: the run takes "
        f"{given.num_train_steps * size / data.total:.1f} epochs"
    )
    if data.packed:
        log.say(
            "note: some records are compressed, so every host reads all files, and a "
            "resumed run first reads its epoch again up to where it stopped"
        )
    if given.num_warmup_steps >= given.num_train_steps:
        log.say(
            f"warning: the learning rate never reaches {given.learning_rate}, for "
            f"--num_warmup_steps={given.num_warmup_steps} is not below "
            f"--num_train_steps={given.num_train_steps}"
        )
    try:
        with _blaming(data), run.interruptible(given.output_dir):
            trainer.train(
                lambda first_batch, part: data.training(
                    size, seed=given.seed, first_batch=first_batch, part=part
                ),
                given.output_dir,
                log,
                held_out,
            )
    except loop.NotFiniteError as error:
        raise _not_finite(error, given, data, trainer.strategy) from error


def _not_finite(error, given, data, strategy) -> UserError:
    """Saves the first skipped batch of the row and says where its records are."""
    size, seed = given.train_batch_size, given.seed
    batch = next(iter(data.training(size, seed=seed, first_batch=error.step)))
    places = data.places(size, seed=seed, batch=error.step)
    path = os.path.join(given.output_dir, "skipped_batch.npz")
    file = io.BytesIO()
    np.savez(
        file,
        record_file=[name for name, _ in places],
        record_number=[number for _, number in places],
        **{name: value.numpy() for name, value in batch.items()},
    )
    distribution.on_chief(
        strategy, lambda: run_folder.write_file(path, file.getvalue())
    )
    some = ", ".join(f"{file}: record {number}" for file, number in places[:3])
    return UserError(
        f"loss or gradient was not finite in {error.count} updates in a row, from step "
        f"{error.step} on; the batch of that step ({some} ...) is in {path}; lower "
        "--learning_rate, or mend these records"
    )


@distribution.together()
def main(given: Options) -> None:
    """Runs what the flags ask for.

    Raises:
        UserError: flags, config, records or checkpoints do not fit each other.
    """
    config = run.read_config(given)
    tokenizer = _tokenizer(given, config) if given.do_export else None
    # Before anything that makes TensorFlow look for devices.
    strategy = given.strategy()
    replicas = strategy.num_replicas_in_sync
    if given.do_train:
        run.check_division(
            "train_batch_size",
            given.train_batch_size,
            replicas,
            given.gradient_accumulation_steps,
        )
    run.check_division("eval_batch_size", given.eval_batch_size, replicas)
    patterns = [*given.input_file, *given.eval_input_file]
    described = reading.describe(reading.find(patterns))
    data, held_out = (
        _read(files, described, given, config) if files else None
        for files in (given.input_file, given.eval_input_file)
    )
    _check_vocabularies(described, given, tokenizer)
    log = report.Report(
        given.output_dir,
        total_steps=given.num_train_steps,
        batch_size=given.train_batch_size,
        active=distribution.is_chief(strategy),
    )
    distribution.on_chief(strategy, lambda: export.recover(given.output_dir))
    with contextlib.ExitStack() as stack:
        prepare = None
        if given.do_train:
            prepare = _check_settings(given, config, data, log)
            stack.enter_context(run.held(strategy, given.output_dir, log))
        _run(given, config, tokenizer, strategy, data, held_out, prepare, log)


def _check_settings(given, config, data, log) -> Callable:
    """Holds a run to what it began with; returns what prepares its folder."""
    identity = _identity(given, config, data)
    # A run of an earlier version did not note its records, and is not held to them.
    defaults = run.defaults(given, config) | {_CONTENT: identity[_CONTENT]}
    run_folder.check_settings(given.output_dir, identity, defaults)
    began = run_folder.noted_settings(given.output_dir)
    if began and _CONTENT not in began and not data.packed:
        log.say(
            "note: this run was begun by an earlier version, which read records in "
            "another order; it continues in the order of this version"
        )
    return functools.partial(
        run.prepare,
        given.output_dir,
        identity,
        config,
        given.init_checkpoint,
        defaults=defaults,
    )


def _run(given, config, tokenizer, strategy, data, held_out, prepare, log) -> None:
    """Trains, evaluates and exports; everything but the checkpoint is known to fit."""
    objective = OBJECTIVES[given.objective]()
    trainer = loop.Trainer(
        strategy,
        lambda: objective.network(config, seed=given.seed, dtype=given.dtype),
        objective,
        given.settings(
            num_train_steps=given.num_train_steps,
            num_warmup_steps=given.num_warmup_steps,
            learning_rate=given.learning_rate,
            batch_size=given.train_batch_size,
            seed=given.seed,
        ),
    )
    log.say(trainer.description)
    required = trainer.model.encoder.required
    if given.do_export and not given.do_train:
        # A head without training fills masks at random.
        required = tuple(v.path for v in trainer.model.trainable_variables)
    run.start(
        trainer,
        given.output_dir,
        given.init_checkpoint,
        log,
        required=required,
        trains=given.do_train,
    )
    if given.do_train:
        distribution.on_chief(strategy, lambda: prepare(trainer=trainer))
        evaluate = held_out and (lambda: _evaluate(trainer, given, held_out))
        _train(trainer, given, data, evaluate, log)
    if given.do_eval:
        values = _evaluate(trainer, given, held_out or data)
        values = values | {"global_step": trainer.progress.step}
        if distribution.is_chief(strategy):
            _write_results(given, values, log)
    if given.do_export:
        distribution.on_chief(
            strategy, lambda: _export(trainer, given, config, tokenizer, log)
        )


def _write_results(given: Options, values: dict, log: report.Report) -> None:
    path = os.path.join(given.output_dir, "eval_results.txt")
    lines = run.results_lines(values)
    run_folder.write_file(path, lines)
    log.say(f"evaluated, written to {path}: {', '.join(lines.splitlines())}")


def _tokenizer(given, config):
    export.check_place(given.output_dir)
    tokenizer = run.make_tokenizer(given)
    run.check_vocabulary(tokenizer.vocabulary, given, config)
    return tokenizer


def _export(trainer, given, config, tokenizer, log):
    folder = encoder_export.save(
        trainer,
        given.output_dir,
        tokenizer=tokenizer,
        config=config,
        max_seq_length=given.max_seq_length,
        max_predictions_per_seq=given.max_predictions_per_seq,
        dtype=given.export_dtype,
        formats=given.export_formats,
    )
    log.say(
        f"exported to {folder}; loaded by another process, it gave the same answers"
    )


if __name__ == "__main__":
    options.run(main, Options)
