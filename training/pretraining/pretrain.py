"""One pre-training run: records, training, evaluation, export."""

import contextlib
import dataclasses
import functools
import io
import json
import os
from collections.abc import Callable

import numpy as np

from training.pretraining import (
    discriminator_export,
    dry_run,
    encoder_export,
    next_token_export,
    pretraining_records,
    span_export,
    text_export,
    word_teacher,
)
from training.run import capacity, checks, distribution, implied_flags, loop, report
from training.storage import run_folder
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.objectives.table import OBJECTIVES
from serving import export_folder
from text.instances.kinds import RowOptions
from text.records import descriptions, reading, shards, xlnet_release

_CONTENT = "input_file_sha256"  # a setting of a run
# By the form of the answers.
_EXPORTS = {
    "masks": encoder_export.save,
    "next": next_token_export.save,
    "replaced": discriminator_export.save,
    "text": span_export.save,
}


def pretrain(given) -> None:
    """Does what the flags of run_pretraining.py ask for.

    Raises:
        UserError: flags, config, records or checkpoints do not match.
    """
    given = implied_flags.with_config(given)
    config = checks.read_config(given)
    _check_objective(given, config)
    # Must precede anything that makes TensorFlow look for devices.
    strategy = given.strategy()
    _check_divisions(given, strategy.num_replicas_in_sync)
    _check_capacity(given, config)
    log = _make_log(given, strategy)
    paths = shards.find([*given.input_file, *given.eval_input_file])
    log.say(f"reading {len(paths)} file(s) of records")
    described = xlnet_release.find(paths) | descriptions.find(paths)
    given, text = _with_vocabulary(given, described)
    tokenizer = _tokenizer(given, config) if given.vocab_file else None
    objective, schema, drawn = pretraining_records.choose_objective(
        given, config, paths, described, tokenizer
    )
    _check_devices(given, objective.carried(config), strategy.num_replicas_in_sync)
    data, held_out = (
        pretraining_records.read(files, described, given, config, schema)
        if files
        else None
        for files in (given.input_file, given.eval_input_file)
    )
    pretraining_records.check_vocabularies(described, given, tokenizer)
    if given.do_train:
        pretraining_records.check_batches(data, given)
    text = tokenizer.settings if tokenizer else text
    teacher = None
    if given.distill_from and given.do_train:
        teacher = word_teacher.load(given, config, text, strategy)
        objective = teacher.distilled(given, config, objective)
    if given.dry_run:
        _tell_needs(given, _make_trainer(given, config, objective, strategy), data)
        return
    distribution.on_chief(strategy, lambda: export_folder.recover(given.output_dir))
    with contextlib.ExitStack() as stack:
        prepare = None
        if given.do_train:
            taught = {"teacher_sha256": teacher and teacher.digest}
            begin = _check_settings(given, config, data, drawn | taught, log)

            def prepare(trainer):
                begin(trainer=trainer)
                _write_text(given, text, tokenizer)

            stack.enter_context(checks.held(strategy, given.output_dir, log))
        trainer = _make_trainer(given, config, objective, strategy)
        log.say(trainer.description)
        if teacher:
            log.say(teacher.description)
        _run(given, config, tokenizer, trainer, data, held_out, prepare, log)


def _make_log(given, strategy) -> report.Report:
    return report.Report(
        given.output_dir,
        total_steps=given.num_train_steps,
        batch_size=given.train_batch_size,
        active=distribution.is_chief(strategy) and not given.dry_run,
    )


def _make_trainer(given, config, objective, strategy) -> loop.Trainer:
    return loop.Trainer(
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


def _tell_needs(given, trainer, data) -> None:
    """Prints what --dry_run asks for."""
    length = given.max_seq_length
    reads_masks = trainer.measured.reads_masks
    predictions = given.max_predictions_per_seq if reads_masks else length
    with pretraining_records.blaming(data):
        needs = dry_run.measure(trainer, data, length, predictions)
    epochs = given.num_train_steps * given.train_batch_size / data.total
    if distribution.is_chief(trainer.strategy):
        print(*needs.lines(given.num_train_steps, epochs), sep="\n")
        if given.distill_from:
            print("time and memory include the teacher; weights and operations do not")


def _check_devices(given, carried, replicas):
    if carried and replicas > 1:
        raise UserError(
            f"--mem_len={given.mem_len}: memory is for one device; use --distribution=one, "
            "or leave the flag out"
        )


def _check_divisions(given, replicas):
    if given.do_train:
        checks.check_division(
            "train_batch_size",
            given.train_batch_size,
            replicas,
            given.gradient_accumulation_steps,
        )
    checks.check_division("eval_batch_size", given.eval_batch_size, replicas)


def _check_capacity(given, config):
    """Refuses rows and memory that cannot fit: the outputs of all layers, in 16 bits."""
    if given.do_train and not given.uses_tpu:
        rows = given.train_batch_size // given.gradient_accumulation_steps
        for name in ("max_seq_length", "mem_len"):
            tokens = rows * getattr(given, name)
            states = tokens * config.num_hidden_layers * config.hidden_size
            flags = f"--train_batch_size={given.train_batch_size} with --{name}="
            capacity.check(f"{flags}{getattr(given, name)}", 2 * states)


# --- The run -------------------------------------------------------------------------


def _identity(given, config: EncoderConfig, data: reading.Records, drawn: dict) -> dict:
    """The settings that identify a run: with any of them changed, it is another run."""
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
        "seed",
        "objective",
        *OBJECTIVES[given.objective].options,
    )
    return {
        **{name: getattr(given, name) for name in names},
        **given.recipe,
        **given.distillation_settings,
        **dataclasses.asdict(config),
        "input_file": [[os.path.basename(f.path), f.records] for f in data.files],
        _CONTENT: pretraining_records.digest(data),
        **drawn,
    }


def _evaluate(trainer: loop.Trainer, given, data: reading.Records) -> dict:
    """Evaluates on each record once, on at most --max_eval_steps batches."""
    # Differs from the release, which repeats a small set until --max_eval_steps and
    # averages the loss over batches, whatever they contain.
    size = given.eval_batch_size
    count = min(given.max_eval_steps, -(-data.total // size))
    with pretraining_records.blaming(data):
        return trainer.evaluate(
            lambda part: data.evaluation(size, max_batches=count, part=part), count
        )


def _train(trainer, given, data, held_out, log) -> None:
    if trainer.progress.step >= given.num_train_steps:
        log.say(f"already finished: {trainer.progress.step} updates are done")
    else:
        _train_on(trainer, given, data, held_out, log)
    # Also for a run that was killed when only this was left to do.
    if picture := log.draw():
        log.say(f"finished; curves are in {picture}")


def _train_on(trainer, given, data, held_out, log) -> None:
    size = given.train_batch_size
    log.say(
        f"{data.total} records in {len(data.files)} file(s): the run takes "
        f"{given.num_train_steps * size / data.total:.1f} epochs"
    )
    if data.packed:
        log.say(
            "note: some records are compressed, so every host reads all files, and a "
            "resumed run first rereads its epoch up to where it stopped"
        )
    if given.num_warmup_steps >= given.num_train_steps:
        log.say(
            f"warning: the learning rate never reaches {given.learning_rate}, because "
            f"--num_warmup_steps={given.num_warmup_steps} is not less than "
            f"--num_train_steps={given.num_train_steps}"
        )
    try:
        with pretraining_records.blaming(data), checks.interruptible(given.output_dir):
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
    """Saves the first of the skipped batches and says where its records are."""
    size, seed = given.train_batch_size, given.seed
    batch = next(iter(data.training(size, seed=seed, first_batch=error.step)))
    places = data.places(size, seed=seed, batch=error.step)
    path = os.path.join(given.output_dir, run_folder.SKIPPED_BATCH)
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
        f"loss or gradient was not finite in {error.count} consecutive updates, starting "
        f"at step {error.step}; the batch of that step ({some} ...) is in {path}; lower "
        "--learning_rate, or fix these records"
    )


def _check_objective(given, config):
    """Refuses another script's run, and what the objective cannot do with any records."""
    if given.do_train:
        run_folder.check_script(given.output_dir, dataclasses.asdict(given))
    noted = run_folder.noted_settings(given.output_dir)
    for name in ("objective", *OBJECTIVES[given.objective].options):
        value = getattr(given, name)
        if not given.do_train and noted.get(name, value) != value:
            raise UserError(
                f"{given.output_dir}: its run has --{name}={noted[name]}; pass the same, "
                "or choose another output_dir"
            )
    objective = given.make_objective()
    word_teacher.check_objective(given, objective)
    try:
        objective.check(config)
        if given.do_export:
            objective.check_export(config)
    except ValueError as error:
        raise UserError(f"{given.bert_config_file}: {error}") from error


def _check_settings(given, config, data, drawn, log) -> Callable:
    """Checks a run against its first settings; returns what prepares its folder."""
    identity = _identity(given, config, data, drawn)
    # Earlier versions did not note a run's records, so they cannot be checked.
    defaults = checks.defaults(given, config) | {_CONTENT: identity[_CONTENT]}
    defaults |= given.without_teacher | {"teacher_sha256": None}
    defaults |= pretraining_records.drawn_by(RowOptions(masking="dynamic"))
    run_folder.check_settings(given.output_dir, identity, defaults)
    began = run_folder.noted_settings(given.output_dir)
    if began and _CONTENT not in began and not data.packed:
        log.say(
            "note: this run was started by an earlier version, which read records in "
            "another order; it continues in the order of this version"
        )
    return functools.partial(
        checks.prepare,
        given.output_dir,
        identity,
        config,
        given.init_checkpoint,
        defaults=defaults,
    )


def _run(given, config, tokenizer, trainer, data, held_out, prepare, log) -> None:
    """Trains, evaluates and exports; all but the checkpoint has been checked."""
    strategy = trainer.strategy
    required = trainer.model.encoder.required
    if given.do_export and not given.do_train:
        # An untrained head answers at random.
        paths = (variable.path for variable in trainer.model.trainable_variables)
        required = tuple(p for p in paths if p.startswith(trainer.measured.answering))
    checks.start(
        trainer,
        given.output_dir,
        given.init_checkpoint,
        log,
        required=required,
        trains=given.do_train,
    )
    if given.do_train:
        distribution.on_chief(strategy, lambda: prepare(trainer))
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


def _write_results(given, values: dict, log: report.Report) -> None:
    path = os.path.join(given.output_dir, run_folder.RESULTS)
    run_folder.write_file(path, checks.results_lines(values))
    log.scores("evaluation", values)
    log.say(f"evaluation written to {path}")


def _with_vocabulary(given, described):
    """The flags with the vocabulary of the records, and what is known of their text."""
    text = pretraining_records.described_text_settings(described)
    needs = given.do_export or given.make_objective().needs_vocabulary
    paths = {description.vocab_file for description in described.values()}
    given = implied_flags.with_records(given, text, sorted(paths - {None}), needs)
    if given.do_export and not given.vocab_file:
        raise UserError("--do_export needs the --vocab_file of the records")
    return given, text


def _tokenizer(given, config):
    tokenizer = checks.make_tokenizer(given)
    if given.do_export:
        export_folder.check_place(given.output_dir)
        tokenizer.check_graph()
        if given.make_objective().begins_texts and not tokenizer.vocabulary.head:
            raise UserError(
                f"{given.vocab_file}: its rows do not begin with a token of their own, "
                f"which an export of --objective={given.objective} puts before a text; "
                "use another vocabulary, or remove --do_export"
            )
    checks.check_vocabulary(tokenizer.vocabulary, config, given.bert_config_file)
    if run_folder.steps(given.output_dir):
        checks.check_text(tokenizer, given.output_dir)
    return tokenizer


def _write_text(given, settings, tokenizer) -> None:
    """Notes how the text became ids, as far as it is known."""
    if tokenizer:
        run_folder.write_vocabulary(given.output_dir, tokenizer)
    if settings:
        path = os.path.join(given.output_dir, run_folder.TEXT)
        run_folder.write_file(path, json.dumps(settings, indent=2) + "\n")


def _export(trainer, given, config, tokenizer, log):
    save = _EXPORTS[trainer.measured.answers]
    wanted = text_export.Wanted(
        tokenizer=tokenizer,
        config=config,
        max_seq_length=given.max_seq_length,
        max_predictions_per_seq=given.max_predictions_per_seq,
        dtype=given.export_dtype,
        formats=given.export_formats,
    )
    folder = save(trainer, given.output_dir, wanted)
    log.say(
        f"exported to {folder}; loaded by another process, it gave the same answers"
    )
