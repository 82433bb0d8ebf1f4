"""The records of a pre-training run, and the objectives that they allow."""

import contextlib
import dataclasses
import functools
import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from training.run import checks
from errors import UserError
from files import anywhere
from modeling.architectures.config import EncoderConfig
from modeling.objectives.objective import Needs, Objective, RowState, Tokens
from modeling.objectives.table import OBJECTIVES
from text.instances.masking import prediction_counts
from text.instances.ngrams import ngram_shares
from text.instances.table import RowOptions
from text.records import descriptions, encoding, framing, reading, shards
from text.records.descriptions import Description
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import CLS, MASK, PAD, SEP, SPECIAL_TOKENS
from training.pretraining.options import PretrainingOptions

_INPUTS = ("input_ids", "input_mask", "segment_ids")
_MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")
# At the beginning of every file.
_CHECKED_RECORDS = 16
_COMPARED_BYTES = 1 << 16

Described = Mapping[str, Description]  # by record file


class RecordSet:
    """The record files that patterns match; what is next to them is read once."""

    def __init__(self, patterns: Iterable[str]):
        self._patterns = patterns

    @functools.cached_property
    def paths(self) -> list[str]:
        """Raises UserError if a pattern matches nothing."""
        return shards.find(self._patterns)

    @functools.cached_property
    def descriptions(self) -> Described:
        """The descriptions next to the files."""
        return descriptions.find(self.paths)

    @functools.cached_property
    def text_settings(self) -> dict:
        """What the descriptions agree on of how text became ids."""
        names = [field.name for field in dataclasses.fields(TokenizerOptions)]
        settings = {}
        for name in ("vocab_sha256", *names):
            each = self.descriptions.values()
            values = {description.setting(name) for description in each}
            if len(values) == 1 and values != {None}:
                settings[name] = values.pop()
        return settings


def memory_flag(flags: PretrainingOptions, state: RowState) -> str:
    """The flag that asks for what rows hand to the next, as a user gave it."""
    return f"--{state.setting}={getattr(flags, state.setting)}"


def _mask_steps(objective, recipe, description) -> list[Callable]:
    """The step that draws masks as the flags of the records say, if one has to."""
    needs = objective.needs
    ids = description.special_ids if description else {}
    if needs.masks == "none" or recipe.make().masks.are_drawn or MASK not in ids:
        return []
    mask_share, random_share = _shares(needs, recipe)
    step = objective.mask_step(
        counts=prediction_counts(
            np.arange(recipe.max_seq_length + 1), recipe.masked_lm_prob
        ),
        max_predictions_per_seq=recipe.max_predictions_per_seq,
        mask_share=mask_share,
        random_share=random_share,
        whole_words=recipe.do_whole_word_mask,
        ngram_shares=ngram_shares(recipe.ngram),
        vocab_size=description.vocab_size,
        mask_id=ids[MASK],
        special_ids=(ids[CLS], ids[SEP]),
    )
    return [step]


def _shares(needs, recipe):
    return needs.mask_shares or (recipe.mask_share, recipe.random_share)


def _needs_by_name() -> dict[str, Needs]:
    return {name: kind.load().needs for name, kind in OBJECTIVES.items()}


def _refuse_without_mask(path, description):
    special_ids = description and description.special_ids
    if MASK not in (special_ids or SPECIAL_TOKENS):
        others = [n for n, needs in _needs_by_name().items() if needs.masks == "none"]
        raise UserError(
            f"{path}: the vocabulary of these records has no token for hidden words, like "
            f"[MASK]; use --objective={' or '.join(others)}"
        )


def _sentinels(vocabulary, config) -> tuple[int, ...]:
    """Its own or, if it has none, the model's rows behind the last token."""
    try:
        return tuple(vocabulary.sentinels)
    except UserError as error:
        if behind := range(config.vocab_size - 1, len(vocabulary) - 1, -1):
            return tuple(behind)
        raise UserError(
            f"{error}; or raise vocab_size in the config by 100, so that the model has "
            "rows for them"
        ) from error


def _check_written(tokenizer, sentinel):
    """Refuses an export whose users could not say where a text lacks something."""
    vocabulary = tokenizer.vocabulary
    is_known = sentinel < len(vocabulary)
    if not is_known or tokenizer.encode(vocabulary.texts[sentinel]) != [sentinel]:
        raise UserError(
            f"--do_export: the tokens of {vocabulary.path} that stand for parts of a text "
            "cannot be written in one, as <extra_id_0> can; export the model after "
            "fine-tuning it with run_text_to_text.py"
        )


def _tokens(tokenizer, flags: PretrainingOptions, config) -> Tokens:
    """What the vocabulary has for an objective that needs it."""
    if not tokenizer:
        raise UserError(
            f"--objective={flags.objective} needs --vocab_file, the vocabulary of the "
            "records, some of whose tokens stand for parts of a text"
        )
    vocabulary = tokenizer.vocabulary
    ids, sentinels = vocabulary.special_ids, _sentinels(vocabulary, config)
    if flags.do_export:
        _check_written(tokenizer, sentinels[0])
    return Tokens(
        sentinels=sentinels,
        end_id=vocabulary.end_id,
        pad_id=vocabulary.pad_id,
        left_out=tuple(ids[name] for name in (CLS, SEP) if name in ids),
    )


def _make_objective(rows, tokenizer, flags: PretrainingOptions, config) -> Objective:
    """The chosen objective, told what it needs to know of the records."""
    facts = {
        "tokens": lambda: _tokens(tokenizer, flags, config),
        "width": lambda: flags.max_seq_length,
        "reuse_len": lambda: rows.reuse,
    }
    names = flags.objective_class.needs.rows
    try:
        return flags.make_objective(**{name: facts[name]() for name in names})
    except ValueError as error:
        raise UserError(f"{flags.vocab_file}: {error}") from error


def _kinds(
    flags: PretrainingOptions, paths, described
) -> tuple[dict[str, RowOptions], RowOptions]:
    """How each file was made; and how those of a release were."""
    sizes = {
        "max_seq_length": flags.max_seq_length,
        "max_predictions_per_seq": flags.max_predictions_per_seq,
    }
    # Records without a description are assumed to be those of a release, and their labels
    # to be what the objective learns.
    task = flags.objective_class.needs.sentence_task
    released = RowOptions.of_release(lambda rows: rows.sentence_task == task, **sizes)
    bert = RowOptions.of_release(**sizes).make().schema()
    own = {f.name for f in released.make().schema()} - {f.name for f in bert}
    for path in paths:
        if own and path not in described:
            _check_released(path, own, flags)
    kinds = {
        path: dataclasses.replace(RowOptions.of(described[path]), **sizes)
        if path in described
        else released
        for path in paths
    }
    return kinds, released


def _check_released(path, own, flags: PretrainingOptions):
    """Refuses BERT's records as those of a release whose records have more features."""
    with contextlib.suppress(ValueError):  # reading refuses it
        first = next(framing.read(path), b"")
        feature_names = {feature.name for feature in encoding.schema_of(first)}
        if "input_ids" in feature_names and not own <= feature_names:
            raise UserError(
                f"{path}: these records have no description, and no {', '.join(own)} as "
                f"those of a release for --objective={flags.objective}; their labels may "
                "mean something else: use the objective that they were written for, or "
                "write records with create_pretraining_data.py"
            )


def choose_objective(
    flags: PretrainingOptions,
    config: EncoderConfig,
    paths: list[str],
    described: Described,
    tokenizer: Tokenizer | None = None,
) -> tuple[Objective, list[Callable], reading.Schema, dict]:
    """The objective, the steps before it, the record features, how masks are drawn.

    Args:
        tokenizer: that of --vocab_file, if given.
    Raises:
        UserError: the records are not of one kind, or lack what the objective needs.
    """
    kinds, released = _kinds(flags, paths, described)
    path, recipe = next(iter(kinds.items()), (None, released))
    description = described.get(path)
    for other, kind in kinds.items():
        _check_same_kind(path, recipe, other, kind)
    rows = recipe.make()
    features = {feature.name: feature for feature in rows.schema()}
    objective = _make_objective(rows, tokenizer, flags, config)
    needs = objective.needs
    _check_needs(flags, needs, path, recipe, description, features)
    if objective.state and not rows.rows_per_batch:
        raise UserError(
            f"{path}: {memory_flag(flags, objective.state)}: is for records whose rows "
            "continue those of the batch before; write them with --instances=contiguous, "
            "or leave the flag out"
        )
    steps = _mask_steps(objective, recipe, description)
    names = {*_INPUTS, *needs.features, *(name for s in steps for name in s.features)}
    if needs.masks != "none" and not steps:
        names |= set(_MASKS)
    schema = tuple(feature for name, feature in features.items() if name in names)
    drawn = mask_flags(recipe) if needs.masks != "none" else {}
    if drawn:
        drawn["mask_share"], drawn["random_share"] = _shares(needs, recipe)
        drawn["vocab_sha256"] = description.vocab_sha256
    if "tokens" in needs.rows:
        drawn["vocab_sha256"] = tokenizer.vocabulary.digest
    return objective, steps, schema, drawn


def _check_needs(flags: PretrainingOptions, needs, path, recipe, description, features):
    """Refuses records that lack what an objective needs; says which would do."""
    if needs.masks != "none":
        _refuse_without_mask(path, description)
    holds_masks = recipe.make().masks.are_drawn
    if holds_masks and needs.masks != "any":
        without = (
            "" if description else ", as there is no description that says otherwise"
        )
        raise UserError(
            f"{path}: the tokens of these records are masked{without}, and --objective="
            f"{flags.objective} needs them as they are; write the records with "
            "--masking=dynamic"
        )
    task = recipe.make().sentence_task
    if lacking := _lacking(needs, features, task):
        fitting = [
            name
            for name, other in _needs_by_name().items()
            if (other.masks == "any" or not holds_masks)
            and not _lacking(other, features, task)
        ]
        raise UserError(
            f"{path}: these records ({recipe.instances}) have no {', '.join(lacking)}, "
            f"which --objective={flags.objective} needs; use --objective="
            f"{' or '.join(fitting)}, or other records"
        )


def _lacking(needs, features, sentence_task):
    """What an objective needs that is not in records of these features and labels."""
    lacking = [name for name in needs.features if name not in features]
    if not lacking and needs.sentence_task not in ("", sentence_task):
        lacking = [f"{needs.sentence_task} labels"]
    return lacking


def _check_same_kind(path, recipe, other, kind):
    one, another = (
        (rows.schema(), rows.sentence_task, bool(rows.rows_per_batch))
        for rows in (recipe.make(), kind.make())
    )
    if one != another:
        raise UserError(
            f"{other}: contains {kind.instances} with {kind.masking} masks, but {path} "
            f"contains {recipe.instances} with {recipe.masking} masks; use records of one "
            "kind"
        )
    expected, others = _read_alike(recipe), _read_alike(kind)
    for name, value in expected.items():
        if others[name] != value:
            raise UserError(
                f"{other}: was made with --{name}={others[name]}, but {path} with {value}; "
                "a run draws all masks the same way, so use records made with the same "
                "flags"
            )


def _read_alike(recipe):
    """The flags that control how a batch becomes one with masks."""
    rows, drawn = recipe.make(), mask_flags(recipe)
    if rows.rows_per_batch:
        drawn["reuse_len"] = rows.reuse
    return drawn


def mask_flags(recipe: RowOptions) -> dict:
    """The flags that control masks drawn in training; none if records contain masks."""
    names = ("masked_lm_prob", "mask_share", "random_share", "do_whole_word_mask")
    names += ("ngram",)
    if recipe.make().masks.are_drawn:
        return {}
    return {name: getattr(recipe, name) for name in names}


def read(
    patterns: list[str],
    described: Described,
    flags: PretrainingOptions,
    config: EncoderConfig,
    schema: reading.Schema,
) -> reading.Records:
    """Opens record files; refuses those that contradict the flags or the config."""
    for path in shards.find(patterns):
        if path in described:
            _check_description(path, described[path], flags, config)
    sizes = dataclasses.asdict(config)
    if not config.has_segments:
        sizes.pop("type_vocab_size", None)  # the segments of records are not read
    together = _rows_per_batch(patterns, described)
    files = shards.survey(patterns, described)
    opened = reading.Records(files, schema, sizes, together)
    opened.check(_CHECKED_RECORDS)
    return opened


def _rows_per_batch(patterns, described):
    """How many records continue those before them together; 0 for records in any order."""
    paths_by_batch_size = {
        RowOptions.of(described[path]).make().rows_per_batch
        if path in described
        else 0: path
        for path in shards.find(patterns)
    }
    if len(paths_by_batch_size) > 1:
        (one, path), (other, another) = list(paths_by_batch_size.items())[:2]
        raise UserError(
            f"{another}: was made with --rows_per_batch={other}, but {path} with {one}; a "
            "run reads all records in batches of the same rows, so use records made with "
            "the same flags"
        )
    return next(iter(paths_by_batch_size), 0)


def check_batches(data: reading.Records, flags: PretrainingOptions) -> None:
    """Raises:
    UserError: records that continue each other do not have the rows of a batch.
    """
    rows = data.rows_per_batch
    if rows and flags.train_batch_size != rows:
        raise UserError(
            f"{data.files[0].path}: in these records, each row continues that of the batch "
            f"before, and a batch has {rows}; pass --train_batch_size={rows}, or write the "
            f"records with --rows_per_batch={flags.train_batch_size}"
        )


def check_vocabularies(
    described: Described, flags: PretrainingOptions, tokenizer: Tokenizer | None
) -> None:
    """Raises:
    UserError: the records' descriptions name different vocabularies, or the tokenizer
        has another vocabulary or other flags.
    """
    vocabularies = {d.vocab_sha256 for d in described.values()}
    if len(vocabularies) > 1:
        raise UserError(
            f"{','.join([*flags.input_file, *flags.eval_input_file])}: records of "
            f"{len(vocabularies)} different vocabularies; use one vocabulary for training "
            "and evaluation"
        )
    if not tokenizer:
        return
    for path, description in described.items():
        for name, value in tokenizer.settings.items():
            recorded_value = description.setting(name, value)
            if recorded_value != value:
                raise UserError(
                    f"{path}: {_unlike(name, recorded_value, value, flags)}"
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
    for name in ("max_seq_length", "max_predictions_per_seq"):
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

    That is of the beginning and the size of each.
    """
    hasher = hashlib.sha256()
    for file in data.files:
        with anywhere.open_file(file.path) as opened:
            hasher.update(hashlib.sha256(opened.read(_COMPARED_BYTES)).digest())
            hasher.update(b"%d\n" % opened.size())
    return {
        "input_file": [[os.path.basename(f.path), f.records] for f in data.files],
        "input_file_sha256": hasher.hexdigest(),
    }
