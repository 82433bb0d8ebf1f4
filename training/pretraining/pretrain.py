"""One pre-training run: records, training, evaluation, export."""

import dataclasses
import io
import json
import math
import pkgutil

import numpy as np

from training.pretraining import (
    dry_run,
    exports,
    objective_choice,
    pretraining_records,
    word_teacher,
)
from training.run import (
    capacity,
    checks,
    distribution,
    loop,
    phases,
    report,
    settle,
)
from training.storage.folder import SKIPPED_BATCH, TEXT
from errors import UserError, count
from modeling.objectives.table import OBJECTIVES
from serving import export_folder, forms
from text.instances.table import RowOptions
from text.records import reading
from text.records.mixed import MixedRecords
from text.records.record_set import RecordSet
from text.tokenizers.tokenizer import Tokenizer
from training.pretraining.by_source import BySource, SourceReadings
from training.pretraining.options import PretrainingOptions
from training.pretraining.pretraining_records import Inputs
from training.run.position import Position
from training.run.run import Run, identity_of, results_file


def pretrain(flags: PretrainingOptions) -> None:
    """Does what the flags of run_pretraining.py ask for.

    Raises:
        UserError: flags, config, records or checkpoints do not match.
    """
    records = RecordSet([*flags.input_file, *flags.eval_input_file])
    mixtures = pretraining_records.find_mixtures(flags, records)
    model = settle.TrainableModel(flags, lambda: _known_model(flags, records))
    config, folder = model.config, model.folder
    settled = model.flags_with_config
    objective = _check_objective(settled, folder, config)
    objective_choice.check_encoder(flags, records, config, settled.bert_config_file)
    is_taught = flags.distill_from and flags.do_train
    teacher = word_teacher.find(settled, records, config) if is_taught else None
    if flags.keep_optimizer and not folder.steps:
        phases.check_continued(
            model.source, flags.num_train_steps, flags.num_decay_steps
        )
    tokenizer = _tokenizer(model)
    # Must precede anything that makes TensorFlow look for devices.
    strategy = flags.strategy()
    _check_devices(flags, config, objective.state, strategy.num_replicas_in_sync)
    log = _make_log(flags, folder, strategy)
    if records.files:  # an export needs none
        log.say(f"reading {len(records.files)} file(s) of records")
    inputs = pretraining_records.read(model, records, tokenizer, mixtures)
    flags = model.flags
    inputs = _complete(inputs, flags, mixtures, teacher, strategy)
    if flags.dry_run:
        source = flags.keep_optimizer and not folder.steps and model.source
        _tell_needs(flags, _make_trainer(flags, inputs, strategy), inputs, source)
        return
    distribution.on_chief(
        strategy, lambda: export_folder.recover(flags.output_dir, folder.names)
    )
    run = Run(
        model,
        strategy,
        log,
        folder,
        identity=_identity(flags, inputs) if flags.do_train else None,
        defaults=objective_choice.mask_flags(
            RowOptions(masking="dynamic").make_instances()
        )
        | {"mixture": None, "sources_sha256": None},
    )
    run.check()
    with run.hold():
        _run(run, flags, inputs, strategy)


def _complete(
    inputs: Inputs, flags: PretrainingOptions, mixtures, source, strategy
) -> Inputs:
    """Adds the teacher, whose weights are in `source`, and losses by source of the rows."""
    objective, teacher = inputs.objective, None
    if source:
        teacher = word_teacher.load(flags, source, inputs.text, strategy)
        objective = teacher.distill(flags, inputs.config, objective)
    if mixtures.training:
        objective = BySource(objective, mixtures.names)
    return inputs._replace(objective=objective, teacher=teacher)


def _run(run: Run, flags: PretrainingOptions, inputs: Inputs, strategy) -> None:
    """Trains, evaluates and exports; all but the checkpoint has been checked."""
    trainer, log = _make_trainer(flags, inputs, strategy), run.log
    log.say(trainer.description)
    if inputs.teacher:
        log.say(inputs.teacher.description)
    required = _required_variables(flags, trainer)
    run.start(trainer, required, with_optimizer=flags.keep_optimizer)
    if flags.do_train:
        run.prepare(_text_files(inputs))
        _train(run, trainer, flags, inputs)
    if flags.do_eval:
        values = _evaluate(trainer, flags, inputs.held_out or inputs.data)
        values |= {"global_step": trainer.progress.step}
        if distribution.is_chief(strategy):
            log.scores("evaluation", values)
            (path,) = run.folder.write_files(results_file(values))
            log.say(f"evaluation written to {path}")
    if flags.do_export:
        distribution.on_chief(strategy, lambda: _export(trainer, flags, inputs, log))


def _make_log(flags: PretrainingOptions, folder, strategy) -> report.Report:
    return report.Report(
        folder,
        total_steps=flags.num_train_steps,
        batch_size=flags.train_batch_size,
        active=distribution.is_chief(strategy) and not flags.dry_run,
    )


def _make_trainer(flags: PretrainingOptions, inputs: Inputs, strategy) -> loop.Trainer:
    objective = inputs.objective
    return loop.Trainer(
        strategy,
        lambda: objective.network(inputs.config, seed=flags.seed, dtype=flags.dtype),
        objective,
        flags.settings(
            num_train_steps=flags.num_train_steps,
            num_warmup_steps=flags.num_warmup_steps,
            learning_rate=flags.learning_rate,
            batch_size=flags.train_batch_size,
            seed=flags.seed,
        ),
        inputs.steps,
    )


def _tell_needs(flags: PretrainingOptions, trainer, inputs: Inputs, source) -> None:
    """Prints what --dry_run asks for.

    Args:
        source: the checkpoint that the run continues, if any.
    """
    data, start = inputs.data, Position()
    if source:
        start = phases.place_after(source, _identity(flags, inputs))
    with pretraining_records.blaming(data):
        needs = dry_run.measure(trainer, data)
    size, steps = flags.train_batch_size, flags.num_train_steps - start.step
    epochs, readings = steps * size / data.total, ()
    if isinstance(data, MixedRecords):
        data.begin_at(start.rows_read)
        readings = SourceReadings(data, start, size, flags.seed)
        epochs, readings = None, readings.plan(flags.num_train_steps)
    if distribution.is_chief(trainer.strategy):
        print(*needs.lines(steps, epochs), *readings, sep="\n")
        if flags.distill_from:
            print("time and memory include the teacher; weights and operations do not")


def _check_devices(flags: PretrainingOptions, config, state, replicas):
    """Refuses batches that cannot be divided or do not fit, and memory for several."""
    if state and replicas > 1:
        raise UserError(
            f"{objective_choice.memory_flag(flags, state)}: memory is for one device; "
            "use --distribution=one, or leave the flag out"
        )
    if flags.do_train:
        checks.check_division(
            "train_batch_size",
            flags.train_batch_size,
            replicas,
            flags.gradient_accumulation_steps,
        )
    checks.check_division("eval_batch_size", flags.eval_batch_size, replicas)
    _check_capacity(flags, config, state, replicas)


def _check_capacity(flags: PretrainingOptions, config, state, replicas):
    """Refuses batches, and what rows hand to the next, that cannot fit."""
    if flags.uses_tpu:
        return
    length = flags.max_seq_length
    # Of the words to predict; some objectives have them at all places.
    logits = min(flags.max_predictions_per_seq, length) * config.vocab_size
    if flags.do_train:
        size, parts = flags.train_batch_size, flags.gradient_accumulation_steps
        what = f"--train_batch_size={size}"
        capacity.check_batch(
            what,
            size // parts // replicas,
            length,
            config,
            logits=logits,
            **flags.memory_use,
        )
        if state:
            of_a_row = sum(map(math.prod, state.shapes(config).values()))
            what = f"{what} with {objective_choice.memory_flag(flags, state)}"
            capacity.check(what, 4 * of_a_row * (size // replicas))
    if flags.do_eval or flags.eval_every_steps:
        size = flags.eval_batch_size
        what = f"--eval_batch_size={size}"
        capacity.check_batch(what, size // replicas, length, config, dtype=flags.dtype)


# --- The run -------------------------------------------------------------------------


def _identity(flags: PretrainingOptions, inputs: Inputs) -> dict:
    parts = pretraining_records.identity(inputs.data), inputs.drawn
    return identity_of(flags, inputs.config, inputs.teacher, *parts)


def _evaluate(
    trainer: loop.Trainer, flags: PretrainingOptions, data: reading.Records
) -> dict:
    """Evaluates on each record once, on at most --max_eval_steps batches."""
    # Differs from the release, which repeats a small set until --max_eval_steps and
    # averages the loss over batches, whatever they contain.
    size = flags.eval_batch_size
    count = min(flags.max_eval_steps, -(-data.total // size))
    with pretraining_records.blaming(data):
        return trainer.evaluate(
            lambda part: data.evaluation(size, max_batches=count, part=part), count
        )


def _train(run: Run, trainer, flags: PretrainingOptions, inputs: Inputs) -> None:
    size, data, held_out = flags.train_batch_size, inputs.data, inputs.held_out
    if isinstance(data, MixedRecords):
        data.begin_at(trainer.progress.rows_read)
        run.log.watch = SourceReadings(data, trainer.progress, size, flags.seed)
    try:
        with pretraining_records.blaming(data):
            run.train(
                trainer,
                lambda first_batch, part: data.training(
                    size, seed=flags.seed, first_batch=first_batch, part=part
                ),
                held_out and (lambda: _evaluate(trainer, flags, held_out)),
                announce=lambda: _announce(run.log, flags, data, trainer.progress),
            )
    except loop.NotFiniteError as error:
        raise _not_finite(error, flags, run.folder, data, trainer) from error


def _announce(log, flags: PretrainingOptions, data, progress):
    batches = flags.num_train_steps + progress.batch_offset
    if log.watch:
        for line in log.watch.plan(flags.num_train_steps):
            log.say(line)
    else:
        log.say(
            f"{data.total} records in {len(data.files)} file(s): the run takes "
            f"{batches * flags.train_batch_size / data.total:.1f} epochs"
        )
    if data.packed:
        log.say(
            "note: some records are compressed, so every host reads all files, and a "
            "resumed run first rereads its epoch up to where it stopped"
        )
    if flags.num_warmup_steps >= flags.num_train_steps:
        log.say(
            f"warning: the learning rate never reaches {flags.learning_rate}, because "
            f"--num_warmup_steps={flags.num_warmup_steps} is not less than "
            f"--num_train_steps={flags.num_train_steps}"
        )


def _not_finite(error, flags: PretrainingOptions, folder, data, trainer) -> UserError:
    """Saves the first of the skipped batches and says where its records are."""
    size, seed = flags.train_batch_size, flags.seed
    number = error.step + trainer.progress.batch_offset
    batch = next(iter(data.training(size, seed=seed, first_batch=number)))
    places = data.places(size, seed=seed, batch=number)
    file = io.BytesIO()
    np.savez(
        file,
        record_file=[name for name, _ in places],
        record_number=[number for _, number in places],
        **{name: value.numpy() for name, value in batch.items()},
    )
    distribution.on_chief(
        trainer.strategy, lambda: folder.write(SKIPPED_BATCH, file.getvalue())
    )
    path = folder.file(SKIPPED_BATCH)
    some = ", ".join(f"{file}: record {number}" for file, number in places[:3])
    return UserError(
        "loss or gradient was not finite in "
        f"{count(error.count, 'consecutive update')}, starting at step "
        f"{error.step}; the batch of that step ({some} ...) is in {path}; lower "
        "--learning_rate, or fix these records"
    )


def _check_objective(flags: PretrainingOptions, folder, config):
    """Refuses another's folder, and what the objective cannot do with any records."""
    folder.check_place(flags.do_train, flags.do_eval)
    if flags.do_train:
        folder.check_script(dataclasses.asdict(flags))
    recorded_settings = folder.settings
    for name in ("objective", *OBJECTIVES[flags.objective].options):
        value = getattr(flags, name)
        if not flags.do_train and recorded_settings.get(name, value) != value:
            raise UserError(
                f"{flags.output_dir}: its run has --{name}={recorded_settings[name]}; pass "
                "the same, or choose another output_dir"
            )
    objective = flags.make_objective()
    word_teacher.check_objective(flags, objective)
    checks.check_objective(objective, config, flags.bert_config_file)
    if flags.do_export:
        _check_export(flags, objective.exporter, config)
    return objective


def _check_export(flags: PretrainingOptions, exporter, config):
    """Refuses an objective whose network answers nothing to a text."""
    if not exporter:
        raise UserError(
            f"--do_export: --objective={flags.objective} has no export: its network "
            "answers nothing about a text; use the checkpoint in extract_features.py, or "
            "export a fine-tuned model"
        )
    reads_on = config.attention_direction == "left_to_right"
    if exporter.continues_texts and not reads_on:
        raise UserError(
            f"{flags.bert_config_file}: exports of --objective={flags.objective} need "
            '"attention_direction": "left_to_right"; export a fine-tuned model'
        )


def _required_variables(flags: PretrainingOptions, trainer) -> tuple[str, ...]:
    """The names of the variables that --init_checkpoint must have."""
    if flags.do_train or not flags.do_export:
        return trainer.model.encoder.required_variables
    # An untrained head answers at random.
    paths = (variable.path for variable in trainer.model.trainable_variables)
    variables = trainer.for_evaluation.exporter.variables
    return tuple(path for path in paths if path.startswith(variables))


def _known_model(flags: PretrainingOptions, records: RecordSet) -> settle.KnownRecords:
    """What the records know of the model."""
    paths = {description.vocab_file for description in records.descriptions}
    return settle.KnownRecords(
        pretraining_records.text_settings(records),
        sorted(paths - {None}),
        flags.do_export or "tokens" in flags.objective_class.needs.rows,
    )


def _tokenizer(model: settle.TrainableModel) -> Tokenizer | None:
    """That of the records, if their vocabulary is known."""
    flags = model.flags
    if not flags.vocab_file:
        if flags.do_export:
            raise UserError("--do_export needs the --vocab_file of the records")
        return None
    tokenizer = model.tokenizer
    if flags.do_export:
        export_folder.check_place(flags.output_dir)
        exporter = flags.objective_class.exporter
        if exporter.continues_texts and not tokenizer.vocabulary.head:
            raise UserError(
                f"{flags.vocab_file}: its rows do not begin with a token of their own, "
                f"which an export of --objective={flags.objective} puts before a text; "
                "use another vocabulary, or remove --do_export"
            )
    checks.check_vocabulary(tokenizer.vocabulary, model.config, flags.bert_config_file)
    if model.folder.steps:
        settle.check_text(tokenizer, model.earlier_run.text)
    return tokenizer


def _text_files(inputs: Inputs) -> dict[str, str | bytes]:
    """The vocabulary, and how the text became ids, as far as they are known, by name."""
    files = dict(inputs.tokenizer.files) if inputs.tokenizer else {}
    if inputs.text:
        files[TEXT] = json.dumps(inputs.text, indent=2) + "\n"
    return files


def _export(trainer, flags: PretrainingOptions, inputs: Inputs, log):
    form = trainer.for_evaluation.exporter.form
    settings = exports.ExportSettings(
        tokenizer=inputs.tokenizer,
        config=inputs.config,
        max_seq_length=flags.max_seq_length,
        max_predictions_per_seq=flags.max_predictions_per_seq,
        precision=flags.export_precision,
        formats=flags.export_formats,
    )
    kind = pkgutil.resolve_name(forms.FORMS[form].export)
    folder = kind(trainer, settings).save(flags.output_dir)
    log.say(
        f"exported to {folder}; loaded by another process, it gave the same answers"
    )
