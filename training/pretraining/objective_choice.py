"""Chooses what is learned from records: the objective, its masks, what it reads."""

from collections.abc import Callable

import numpy as np

from training import backend  # noqa: F401  TensorFlow, without its log messages
from errors import UserError
from modeling.architectures.config import EncoderConfig
from modeling.architectures.table import ARCHITECTURES
from modeling.objectives.objective import Needs, Objective, RowState, Tokens
from modeling.objectives.table import OBJECTIVES
from text.instances.instances import Instances
from text.instances.masking import prediction_counts
from text.instances.ngrams import ngram_shares
from text.instances.table import RowOptions
from text.records import reading
from text.records.record_set import RecordFile, RecordSet
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import CLS, MASK, SEP, SPECIAL_TOKENS
from training.pretraining.options import PretrainingOptions

_INPUTS = ("input_ids", "input_mask", "segment_ids", "position_ids")
_MASKS = ("masked_lm_positions", "masked_lm_ids", "masked_lm_weights")


def choose_objective(
    flags: PretrainingOptions,
    config: EncoderConfig,
    tokenizer: Tokenizer | None,
    rows: Instances,
    file: RecordFile | None,
) -> tuple[Objective, list[Callable], reading.Schema, dict]:
    """The objective, the steps before it, the record features, how masks are drawn.

    Args:
        tokenizer: that of --vocab_file, if given.
        rows: their kind.
        file: the first of them; None for an export alone.
    Raises:
        UserError: the records lack what the objective needs.
    """
    path, description = (file.path, file.description) if file else (None, None)
    features = {feature.name: feature for feature in rows.schema()}
    objective = _make_objective(rows, tokenizer, flags, config)
    needs = objective.needs
    _check_needs(flags, needs, path, rows, description, features)
    if objective.state and not rows.rows_per_batch:
        raise UserError(
            f"{path}: {memory_flag(flags, objective.state)}: is for records whose rows "
            "continue those of the batch before; write them with --instances=contiguous, "
            "or leave the flag out"
        )
    steps = _mask_steps(objective, rows, description)
    if flags.masked_lm_prob is not None and not steps:
        raise UserError(
            f"--masked_lm_prob={flags.masked_lm_prob}: has no effect, as no masks are "
            f"drawn for --objective={flags.objective} in {path}; it is for records made "
            "with --masking=dynamic"
        )
    names = {*_INPUTS, *needs.features, *(name for s in steps for name in s.features)}
    if needs.masks != "none" and not steps:
        names |= set(_MASKS)
    schema = tuple(feature for name, feature in features.items() if name in names)
    drawn = mask_flags(rows) if needs.masks != "none" else {}
    if drawn:
        drawn["mask_share"], drawn["random_share"] = _shares(needs, rows.options)
        drawn["vocab_sha256"] = description.vocab_sha256
    if "tokens" in needs.rows:
        drawn["vocab_sha256"] = tokenizer.vocabulary.digest
    return objective, steps, schema, drawn


def memory_flag(flags: PretrainingOptions, state: RowState) -> str:
    """The flag that asks for what rows hand to the next, as a user gave it."""
    return f"--{state.setting}={getattr(flags, state.setting)}"


def mask_flags(rows: Instances) -> dict:
    """The flags that control masks drawn in training; none if records contain masks."""
    names = ("masked_lm_prob", "mask_share", "random_share", "do_whole_word_mask")
    names += ("ngram",)
    if rows.masks.are_drawn:
        return {}
    return {name: getattr(rows.options, name) for name in names}


def check_encoder(
    flags: PretrainingOptions, records: RecordSet, config: EncoderConfig, source: str
) -> None:
    """Refuses an encoder that cannot read the records' kind of rows.

    Args:
        source: of the encoder: what the message begins with.
    Raises:
        UserError: says which ones can, or which losses cannot be compared in such rows.
    """
    for description in records.descriptions:
        rows = RowOptions.of(description).make_instances()
        name, needed = rows.options.instances, rows.capability
        if needed and needed not in config.capabilities:
            able = [
                k for k, a in ARCHITECTURES.items() if needed in a.config.capabilities
            ]
            raise UserError(
                f"{source}: with the architecture {config.architecture!r}, tokens see all "
                f"documents of a row, and {description.path} says --instances={name}; use "
                f"records of another kind, or an architecture of {', '.join(able)}"
            )
        for weight in ("distill_attention_weight", "distill_cls_weight"):
            if needed and flags.distill_from and getattr(flags, weight):
                raise UserError(
                    f"--{weight}={getattr(flags, weight)}: compares whole rows, and "
                    f"{description.path} says --instances={name}, where a row is several "
                    "documents; leave the flag out, or use records of another kind"
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


def _mask_steps(objective, rows, description) -> list[Callable]:
    """The step that draws masks as the flags of the records say, if one has to."""
    needs = objective.needs
    ids = description.special_ids if description else {}
    if needs.masks == "none" or rows.masks.are_drawn or MASK not in ids:
        return []
    flags = rows.options
    mask_share, random_share = _shares(needs, flags)
    step = objective.mask_step(
        counts=prediction_counts(
            np.arange(flags.max_seq_length + 1), flags.masked_lm_prob
        ),
        max_predictions_per_seq=flags.max_predictions_per_seq,
        mask_share=mask_share,
        random_share=random_share,
        whole_words=flags.do_whole_word_mask,
        ngram_shares=ngram_shares(flags.ngram),
        vocab_size=description.vocab_size,
        mask_id=ids[MASK],
        special_ids=(ids[CLS], ids[SEP]),
    )
    return [step]


def _shares(needs, flags: RowOptions):
    return needs.mask_shares or (flags.mask_share, flags.random_share)


def _check_needs(flags: PretrainingOptions, needs, path, rows, description, features):
    """Refuses records that lack what an objective needs; says which would do."""
    if needs.masks != "none":
        _refuse_without_mask(path, description)
    holds_masks = rows.masks.are_drawn
    if holds_masks and needs.masks != "any":
        without = (
            "" if description else ", as there is no description that says otherwise"
        )
        raise UserError(
            f"{path}: the tokens of these records are masked{without}, and --objective="
            f"{flags.objective} needs them as they are; write the records with "
            "--masking=dynamic"
        )
    if lacking := _lacking(needs, features, rows.sentence_task):
        fitting = [
            name
            for name, other in _needs_by_name().items()
            if (other.masks == "any" or not holds_masks)
            and not _lacking(other, features, rows.sentence_task)
        ]
        raise UserError(
            f"{path}: these records ({rows.options.instances}) have no "
            f"{', '.join(lacking)}, which --objective={flags.objective} needs; use "
            f"--objective={' or '.join(fitting)}, or other records"
        )


def _refuse_without_mask(path, description):
    special_ids = description and description.special_ids
    if MASK not in (special_ids or SPECIAL_TOKENS):
        others = [n for n, needs in _needs_by_name().items() if needs.masks == "none"]
        raise UserError(
            f"{path}: the vocabulary of these records has no token for hidden words, like "
            f"[MASK]; use --objective={' or '.join(others)}"
        )


def _lacking(needs, features, sentence_task):
    """What an objective needs that is not in records of these features and labels."""
    lacking = [name for name in needs.features if name not in features]
    if not lacking and needs.sentence_task not in ("", sentence_task):
        lacking = [f"{needs.sentence_task} labels"]
    return lacking


def _needs_by_name() -> dict[str, Needs]:
    return {name: kind.load().needs for name, kind in OBJECTIVES.items()}
