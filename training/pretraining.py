"""One pre-training run: its records, what it learns of them, training, evaluation, export.

A new objective is a file in modeling/objectives and a row of OBJECTIVES.
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

from modeling.encoders.config import EncoderConfig
from modeling.objectives.dynamic_masks import DynamicMasks
from modeling.objectives.masked_lm import MaskedLM
from modeling.objectives.objective import Objective
from modeling.objectives.pretraining import MaskedLMNextSentence
from serving import export
from text.errors import UserError
from text.files import anywhere
from text.instances.kinds import RowOptions
from text.instances.masking import prediction_counts
from text.records import reading, shards
from text.records.descriptions import Description
from text.tokenizers.vocabulary import CLS, MASK, SEP
from text.tokenizers.wordpiece import Tokenizer
from training import distribution, encoder_export, loop, report, run, run_folder

# isort: split
import tensorflow as tf

OBJECTIVES = {
    "masked_lm_next_sentence": MaskedLMNextSentence,
    "masked_lm": MaskedLM,
}


def _draws_masks(objective, recipe, description) -> Objective:
    """The objective on records without masks, which are drawn as these flags say."""
    lengths = np.arange(recipe.max_seq_length + 1)
    ids = description.special_ids
    return DynamicMasks(
        objective,
        counts=prediction_counts(lengths, recipe.masked_lm_prob),
        max_predictions_per_seq=recipe.max_predictions_per_seq,
        mask_share=recipe.mask_share,
        random_share=recipe.random_share,
        whole_words=recipe.do_whole_word_mask,
        vocab_size=description.vocab_size,
        mask_id=ids[MASK],
        special_ids=(ids[CLS], ids[SEP]),
    )


# What becomes of an objective, by the kind of masks in the records.
MASKINGS = {
    "static": lambda objective, recipe, description: objective,
    "dynamic": _draws_masks,
}

_INPUTS = ("input_ids", "input_mask", "segment_ids")
# At the beginning of every file.
_CHECKED_RECORDS = 16
_COMPARED_BYTES = 1 << 16
_CONTENT = "input_file_sha256"  # a setting of a run

Described = Mapping[str, Description]  # record file to what is beside it


def pretrain(given) -> None:
    """Runs what the flags of run_pretraining.py ask for.

    Raises:
        UserError: flags, config, records or checkpoints do not fit each other.
    """
    config = run.read_config(given)
    tokenizer = _tokenizer(given, config) if given.do_export else None
    # Before anything that makes TensorFlow look for devices.
    strategy = given.strategy()
    _check_divisions(given, strategy.num_replicas_in_sync)
    paths = shards.find([*given.input_file, *given.eval_input_file])
    described = shards.describe(paths)
    objective, schema, drawn = _objective(given, paths, described)
    data, held_out = (
        _read(files, described, given, config, schema) if files else None
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
            prepare = _check_settings(given, config, data, drawn, log)
            stack.enter_context(run.held(strategy, given.output_dir, log))
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
        _run(given, config, tokenizer, trainer, data, held_out, prepare, log)


def _check_divisions(given, replicas):
    if given.do_train:
        run.check_division(
            "train_batch_size",
            given.train_batch_size,
            replicas,
            given.gradient_accumulation_steps,
        )
    run.check_division("eval_batch_size", given.eval_batch_size, replicas)


# --- Records, and what is learned of them --------------------------------------------


def _objective(
    given, paths: list[str], described: Described
) -> tuple[Objective, reading.Schema, dict]:
    """What is learned, the features of records that this needs, and how masks are drawn.

    Raises:
        UserError: the records are not of one kind, or lack what the objective needs.
    """
    sizes = {
        "max_seq_length": given.max_seq_length,
        "max_predictions_per_seq": given.max_predictions_per_seq,
    }
    # Without a description, records are taken for the release's.
    kinds = {
        path: dataclasses.replace(
            RowOptions.of(described[path]) if path in described else RowOptions(),
            **sizes,
        )
        for path in paths
    }
    path, recipe = next(iter(kinds.items()), (None, RowOptions(**sizes)))
    description = described.get(path)
    for other, kind in kinds.items():
        _check_same_kind(path, recipe, other, kind)
    found = {feature.name: feature for feature in recipe.make().schema()}
    wraps = MASKINGS[recipe.masking]
    objectives = {
        name: wraps(objective(), recipe, description)
        for name, objective in OBJECTIVES.items()
    }
    objective = objectives[given.objective]
    if lacking := [name for name in objective.features if name not in found]:
        fits = [n for n, o in objectives.items() if set(o.features) <= found.keys()]
        raise UserError(
            f"{path}: these records ({recipe.instances}) have no {', '.join(lacking)}, "
            f"which --objective={given.objective} needs; give --objective="
            f"{' or '.join(fits)}, or other records"
        )
    wanted = {*_INPUTS, *objective.features}
    schema = tuple(f for name, f in found.items() if name in wanted)
    drawn = _drawn_by(recipe)
    if drawn:
        drawn["vocab_sha256"] = description.vocab_sha256
    return objective, schema, drawn


def _check_same_kind(path, recipe, other, kind):
    if kind.make().schema() != recipe.make().schema():
        raise UserError(
            f"{other}: holds {kind.instances} with {kind.masking} masks, and {path} "
            f"{recipe.instances} with {recipe.masking} masks; give records of one kind"
        )
    for name, value in _drawn_by(recipe).items():
        if getattr(kind, name) != value:
            raise UserError(
                f"{other}: was made with --{name}={getattr(kind, name)}, and {path} with "
                f"{value}; masks are drawn in one way, so give records of the same flags"
            )


def _drawn_by(recipe: RowOptions) -> dict:
    """The flags that decide masks drawn in training; none where records hold masks."""
    names = ("masked_lm_prob", "mask_share", "random_share", "do_whole_word_mask")
    if recipe.make().masks.are_drawn:
        return {}
    return {name: getattr(recipe, name) for name in names}


def _read(
    patterns: list[str],
    described: Described,
    given,
    config: EncoderConfig,
    schema: reading.Schema,
) -> reading.Records:
    """Opens record files and refuses those that flags or config contradict."""
    for path in shards.find(patterns):
        if path in described:
            _check_description(path, described[path], given, config)
    sizes = dataclasses.asdict(config)
    opened = reading.Records(shards.survey(patterns, described), schema, sizes)
    opened.check(_CHECKED_RECORDS)
    return opened


def _check_vocabularies(
    described: Described, given, tokenizer: Tokenizer | None
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


def _identity(given, config: EncoderConfig, data: reading.Records, drawn: dict) -> dict:
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
        **drawn,
    }


def _digest(data: reading.Records) -> str:
    """Of the beginning and the size of each file, which tell records from others."""
    digest = hashlib.sha256()
    for file in data.files:
        with anywhere.access(file.path), tf.io.gfile.GFile(file.path, "rb") as opened:
            digest.update(hashlib.sha256(opened.read(_COMPARED_BYTES)).digest())
            digest.update(b"%d\n" % opened.size())
    return digest.hexdigest()


def _evaluate(trainer: loop.Trainer, given, data: reading.Records) -> dict:
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


def _check_settings(given, config, data, drawn, log) -> Callable:
    """Holds a run to what it began with; returns what prepares its folder."""
    identity = _identity(given, config, data, drawn)
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


def _run(given, config, tokenizer, trainer, data, held_out, prepare, log) -> None:
    """Trains, evaluates and exports; everything but the checkpoint is known to fit."""
    strategy = trainer.strategy
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


def _write_results(given, values: dict, log: report.Report) -> None:
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
