"""The records of a pre-training run: of one kind, as flags, config and vocabulary say."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from training.run import checks, settle
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.objectives.objective import Objective
from text.instances.instances import Instances
from text.instances.table import RowOptions
from text.records import encoding, mixture, reading
from text.records.mixed import MixedRecords
from text.records.mixture import Mixture
from text.records.record_set import RecordFile, RecordSet
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import PAD
from training.pretraining.objective_choice import choose_objective, mask_flags
from training.pretraining.options import PretrainingOptions
from training.pretraining.word_teacher import WordTeacher

Rows = Mapping[RecordFile, Instances]  # the kind of rows of each file


class Mixtures(NamedTuple):
    """The sources of the records, if these are mixed.

    Attributes:
        training: those of --input_file; None if they are not mixed.
        held_out: those of --eval_input_file.
    """

    training: Mixture | None = None
    held_out: Mixture | None = None

    @property
    def names(self) -> list[str]:
        """Of all sources; the same name is the same source."""
        mixtures = filter(None, self)
        return list(dict.fromkeys(name for each in mixtures for name in each.names))


def find_mixtures(flags: PretrainingOptions, records: RecordSet) -> Mixtures:
    """The sources that the flags name.

    Raises:
        UserError: see `mixture.of_patterns`; or held-out records have weights.
    """
    held_out = list(dict.fromkeys(flags.eval_input_file))
    for pattern in held_out:
        if records.weights[pattern] is not None:
            raise UserError(
                f"--eval_input_file={pattern}: an evaluation reads each record once; leave "
                "the weight out"
            )
    training = mixture.of_patterns(records, flags.input_file, flags.source_temperature)
    if not (training and held_out):
        return Mixtures(training)
    files = [records.matching([pattern]) for pattern in held_out]
    names = mixture.names_of(records, held_out, training.names)
    return Mixtures(training, Mixture(names, files, [1] * len(files)))


class Inputs(NamedTuple):
    """What a run is made of.

    Attributes:
        config: the architecture.
        tokenizer: of the vocabulary, if that is known.
        text: how the text became ids, as far as it is known.
        objective, steps: see `loop.Trainer`.
        drawn: the settings of masks that are drawn in training.
        data, held_out: the records; None without --input_file, --eval_input_file.
        teacher: of a distillation.
    """

    config: EncoderConfig
    tokenizer: Tokenizer | None
    text: dict
    objective: Objective
    steps: list[Callable]
    drawn: dict
    data: reading.Records | None
    held_out: reading.Records | None
    teacher: WordTeacher | None = None


def read(
    model: settle.TrainableModel,
    records: RecordSet,
    tokenizer: Tokenizer | None,
    mixtures: Mixtures,
) -> Inputs:
    """Chooses what is trained on the records; reads the first of each file.

    Args:
        tokenizer: that of --vocab_file, if given.
        mixtures: see `find_mixtures`.
    Raises:
        UserError: the records are not of one kind, lack what the objective needs, or
            contradict the flags, the config or the vocabulary.
    """
    flags, config = model.flags, model.config
    rows_of = _make_rows(flags, records)
    file, rows = next(iter(rows_of.items()), (None, _released_rows(flags)))
    objective, steps, schema, drawn = choose_objective(
        flags, config, tokenizer, rows, file
    )
    data, held_out = (
        _open(
            records.matching(patterns),
            rows_of,
            flags,
            config,
            schema,
            mixed and (mixed, mixtures.names),
        )
        if patterns
        else None
        for patterns, mixed in zip(
            (flags.input_file, flags.eval_input_file), mixtures, strict=True
        )
    )
    _check_vocabularies(records, flags, tokenizer)
    if flags.do_train:
        _check_batches(data, flags)
    text = tokenizer.settings if tokenizer else text_settings(records)
    return Inputs(config, tokenizer, text, objective, steps, drawn, data, held_out)


def text_settings(records: RecordSet) -> dict:
    """What the descriptions agree on of how text became ids."""
    names = [field.name for field in dataclasses.fields(TokenizerOptions)]
    settings = {}
    for name in ("vocab_sha256", *names):
        values = {each.setting(name) for each in records.descriptions}
        if len(values) == 1 and values != {None}:
            settings[name] = values.pop()
    return settings


def _make_rows(flags: PretrainingOptions, records: RecordSet) -> Rows:
    """Makes the kind of rows of each file, as its description says.

    Raises:
        UserError: the files are not of one kind, or of a kind that is not known.
    """
    released, changes = _released_rows(flags), _sizes(flags)
    if flags.masked_lm_prob is not None:
        changes["masked_lm_prob"] = flags.masked_lm_prob
    kinds = {
        each.path: dataclasses.replace(RowOptions.of(each), **changes).make_instances()
        for each in records.descriptions
    }
    rows_of = {}
    for file in records.files:
        if file.description:
            rows_of[file] = kinds[file.description.path]
        else:
            _check_released(file, released, flags)
            rows_of[file] = released
    first = next(iter(rows_of), None)
    for file, rows in rows_of.items():
        if rows is not rows_of[first]:
            _check_same_kind(first.path, rows_of[first], file.path, rows)
    return rows_of


def _sizes(flags: PretrainingOptions):
    names = "max_seq_length", "max_predictions_per_seq"
    return {name: getattr(flags, name) for name in names}


def _released_rows(flags: PretrainingOptions) -> Instances:
    """The rows of records without a description.

    They are assumed to be those of a release, and their labels to be what the objective
    learns.
    """
    task = flags.objective_class.needs.sentence_task
    return RowOptions.of_release(
        lambda rows: rows.sentence_task == task, **_sizes(flags)
    ).make_instances()


def _check_released(file: RecordFile, released: Instances, flags: PretrainingOptions):
    """Refuses BERT's records as those of a release whose records have more features, and
    those whose documents have positions of their own as those of any.
    """
    feature_names = set()
    with contextlib.suppress(ValueError):  # reading refuses it
        first = next(iter(file.beginning.records), b"")
        feature_names = {feature.name for feature in encoding.schema_of(first)}
    if "position_ids" in feature_names:
        raise UserError(
            f"{file.path}: these records have position_ids, but no description that says "
            "what they are for; copy it, too (.description.json), or write them again"
        )
    bert = RowOptions.of_release(**_sizes(flags)).make_instances()
    own = {f.name for f in released.schema()} - {f.name for f in bert.schema()}
    if own and "input_ids" in feature_names and not own <= feature_names:
        raise UserError(
            f"{file.path}: these records have no description, and no {', '.join(own)} "
            f"as those of a release for --objective={flags.objective}; their labels "
            "may mean something else: use the objective that they were written for, or "
            "write records with create_pretraining_data.py"
        )


def _check_same_kind(path, rows, other, kind):
    """Refuses records in `other` that differ from those in `path`."""
    one, another = (
        (x.schema(), x.sentence_task, bool(x.rows_per_batch)) for x in (rows, kind)
    )
    if one != another:
        raise UserError(
            f"{other}: contains {kind.options.instances} with {kind.options.masking} "
            f"masks, but {path} contains {rows.options.instances} with "
            f"{rows.options.masking} masks; use records of one kind"
        )
    expected, others = _read_alike(rows), _read_alike(kind)
    for name, value in expected.items():
        if others[name] != value:
            raise UserError(
                f"{other}: was made with --{name}={others[name]}, but {path} with {value}; "
                "a run draws all masks the same way, so use records made with the same "
                "flags"
            )


def _read_alike(rows):
    """The flags that control how a batch becomes one with masks."""
    reuse = {"reuse_len": rows.reuse} if rows.rows_per_batch else {}
    return mask_flags(rows) | reuse


def _open(files, rows_of, flags: PretrainingOptions, config, schema, mixed=None):
    """Opens record files; refuses those that contradict the flags or the config."""
    for file in files:
        if file.description:
            _check_description(file.path, file.description, flags, config)
    sizes = dataclasses.asdict(config)
    if not config.has_segments:
        sizes.pop("type_vocab_size", None)  # the segments of records are not read
    together = _rows_per_batch({file: rows_of[file] for file in files})
    if together and mixed:
        raise UserError(
            f"{files[0].path}: in these records, each row continues that of the batch "
            "before, so they cannot be mixed; leave out weights and --source_temperature"
        )
    if mixed:
        opened = MixedRecords(*mixed, schema, sizes)
    else:
        opened = reading.Records(files, schema, sizes, together)
    opened.check_beginnings()
    return opened


def _rows_per_batch(rows_of):
    """How many records continue those before them together; 0 for records in any order."""
    paths_by_batch_size = {
        rows.rows_per_batch: file.path for file, rows in rows_of.items()
    }
    if len(paths_by_batch_size) > 1:
        (one, path), (other, another) = list(paths_by_batch_size.items())[:2]
        raise UserError(
            f"{another}: was made with --rows_per_batch={other}, but {path} with {one}; a "
            "run reads all records in batches of the same rows, so use records made with "
            "the same flags"
        )
    return next(iter(paths_by_batch_size), 0)


def _check_batches(data, flags: PretrainingOptions):
    """Refuses records that continue each other in batches of another size."""
    rows = data.rows_per_batch
    if rows and flags.train_batch_size != rows:
        raise UserError(
            f"{data.files[0].path}: in these records, each row continues that of the batch "
            f"before, and a batch has {rows}; pass --train_batch_size={rows}, or write the "
            f"records with --rows_per_batch={flags.train_batch_size}"
        )


def _check_vocabularies(records, flags: PretrainingOptions, tokenizer):
    """Refuses descriptions of different vocabularies, or other ones than flags say."""
    vocabularies = {each.vocab_sha256 for each in records.descriptions}
    if len(vocabularies) > 1:
        raise UserError(
            f"{','.join(records.patterns)}: records of {len(vocabularies)} different "
            "vocabularies; use one vocabulary for training and evaluation"
        )
    described = (file for file in records.files if file.description)
    for file in described if tokenizer else ():
        for name, value in tokenizer.settings.items():
            recorded_value = file.description.setting(name, value)
            if recorded_value != value:
                raise UserError(
                    f"{file.path}: {_unlike(name, recorded_value, value, flags)}"
                )


def _unlike(name, recorded_value, value, flags: PretrainingOptions):
    """How records and tokenizer differ, for a person to read."""
    if name == "vocab_sha256":
        return (
            f"was made with a different vocabulary than {flags.vocab_file}; pass the "
            "vocabulary of the records"
        )
    recorded_value, value = str(recorded_value).lower(), str(value).lower()
    return (
        f"was made with --{name}={recorded_value}, not {value}; pass "
        f"--{name}={recorded_value}"
    )


def _check_description(path, description, flags: PretrainingOptions, config):
    names = ("max_seq_length", "max_predictions_per_seq")
    # With another share of masks, training has another number of predictions.
    for name in names if flags.masked_lm_prob is None else names[:1]:
        recorded_value = description.setting(name, getattr(flags, name))
        if recorded_value != getattr(flags, name):
            raise UserError(
                f"{path}: its description says {name}={recorded_value}, not "
                f"{getattr(flags, name)}; pass --{name}={recorded_value}"
            )
    if (description.vocab_size or 0) > config.vocab_size:
        raise UserError(
            f"{path}: made with a vocabulary of {description.vocab_size} tokens, more "
            f"than vocab_size={config.vocab_size} of {flags.bert_config_file}"
        )
    pad_id = (description.special_ids or {}).get(PAD)
    checks.check_padding(path, pad_id, config, flags.bert_config_file)


@contextlib.contextmanager
def blaming(data: reading.Records) -> Iterator[None]:
    """Finds the record of `data` on which reading or computing fails in the block.

    Raises:
        UserError: names the file and the record.
    """
    try:
        yield
    except reading.ERRORS as error:
        # TensorFlow does not say which record failed. If none is bad, the bug is ours.
        print(
            f"a record is damaged or does not fit; searching {data.total} records for it",
            file=sys.stderr,
        )
        data.check()
        raise error


def identity(data: reading.Records) -> dict:
    """What identifies the records: names and numbers, and a digest of the files.

    That is of the beginning and the size of each. If they are mixed, the sources and their
    shares identify them, too.
    """
    mixed = data if isinstance(data, MixedRecords) else None
    return {
        "input_file": [[os.path.basename(f.path), f.total] for f in data.files],
        "input_file_sha256": data.digest,
        "mixture": mixed and str(mixed.mixture),
        "sources_sha256": mixed and [each.digest for each in mixed.sources.values()],
    }
