"""Turns a tokenizer.json with a Unigram model into SentencePiece's .model file.

The pieces, their scores and the map of characters are the same. What is done to the text
before, such as lowercasing, is not part of a .model file: see `tokenizer_json.settings`.
"""

import base64
import re
from collections.abc import Mapping

from errors import UserError
from text.tokenizers import (
    sentencepiece_files,
    sentencepiece_json_writing,
    tokenizer_json,
)
from text.tokenizers.sentencepiece_files import Piece, Specification
from text.tokenizers.vocabulary import sentinel

_SPACE = "\u2581"
_SPECIAL = re.compile(r"<.+>|\[.+\]")
# The steps before the model, in order; each of them may be missing.
_QUOTES = ['Replace "``"', "Replace \"''\""]
_ACCENTS = ["NFKD", "StripAccents"]
_OF_THE_MODEL = ["Strip", "Precompiled", 'Replace " {2,}"']
_STEPS = ["Strip", *_QUOTES, *_ACCENTS, "Lowercase", *_OF_THE_MODEL[1:]]


def tokens_of(path: str) -> list[str]:
    """The pieces by id.

    Raises:
        UserError: some ids have none, or a mark was added, after which the rest of a word
            would begin another.
    """
    content = tokenizer_json.read(path)
    for token in content["added_tokens"]:
        if not _SPECIAL.fullmatch(mark := token["content"]):
            raise UserError(
                f"{path}: added_tokens has {mark!r}, which is cut out of words, so that "
                "each part of them begins a word; SentencePiece does not do this, so pass "
                "the model's spiece.model with --vocab_file, or use another model"
            )
    added = [token["content"] for token in content["added_tokens"]]
    return tokenizer_json.tokens_of(path, content, added)


def model(path: str, family) -> bytes:
    """The .model file.

    Args:
        family: the `sentencepiece.Family` of these pieces.
    Raises:
        UserError: names a part that our tokenizer does not do.
    """
    content = tokenizer_json.read(path)
    unigram, special = content["model"], family.special
    tokens = _without_sentinels(path, tokens_of(path), family.num_sentinels)
    unknown = special.names[1]
    tokenizer_json.check(path, "model.byte_fallback", unigram["byte_fallback"], [False])
    tokenizer_json.check(
        path, "model.unk_id", unigram["unk_id"], [tokens.index(unknown)]
    )
    tokenizer_json.check_layout(path, content, special)
    said = _specification(content)
    if not _is_ours(content, family, said):
        _check_words(path, content)
        _check_steps(path, content, family)
    kinds = {token: Piece.CONTROL for token in special.tokens}
    for added in content["added_tokens"]:
        kind = Piece.CONTROL if added["special"] else Piece.USER_DEFINED
        kinds.setdefault(added["content"], kind)
    kinds[unknown] = Piece.UNKNOWN
    scores = dict(unigram["vocab"])
    pieces = (
        (
            token.removesuffix(sentencepiece_json_writing.MARK),
            scores.get(token, 0.0),
            kinds.get(token, Piece.NORMAL),
        )
        for token in tokens
    )
    return sentencepiece_files.model(pieces, said)


def _specification(content) -> Specification:
    """What the model does with a text."""
    steps = {step["type"]: step for step in tokenizer_json.steps(content["normalizer"])}
    encoded = steps.get("Precompiled", {}).get("precompiled_charsmap", "")
    return Specification(base64.b64decode(encoded))


def _is_ours(content, family, said) -> bool:
    """Whether text is split as `sentencepiece_json_writing` writes it."""
    flags = tokenizer_json.settings(content)
    cleaner = family.cleaner(
        flags.get("do_lower_case"), flags.get("strip_accents", True)
    )
    composes = "NFC" in (s["type"] for s in tokenizer_json.steps(content["normalizer"]))
    written = sentencepiece_json_writing.normalizer(cleaner, said, composes)
    return content["pre_tokenizer"] is None and (
        _without_tables(content["normalizer"]) == _without_tables(written)
    )


def _without_tables(normalizer) -> list[dict]:
    """The steps, but for the characters of classes, which depend on Python's version."""
    return [
        step | {"pattern": {"Regex": "[]"}}
        if "\\x{" in str(step.get("pattern", ""))
        else step
        for step in tokenizer_json.steps(normalizer)
    ]


def _without_sentinels(path, tokens, number):
    """The pieces of the .model file; `sentencepiece.Family` adds the others to it."""
    if not number:
        return tokens
    names = [sentinel(n).removeprefix(_SPACE) for n in reversed(range(number))]
    if tokens[-number:] != names:
        raise UserError(
            f"{path}: the vocabulary does not end with {names[0]} to {names[-1]}, the "
            "tokens of T5 that stand for parts of a text; use a model that has these"
        )
    return tokens[:-number]


def _check_words(path, content):
    allowed = [["WhitespaceSplit", "Metaspace"], ["Metaspace"]]
    tokenizer_json.check_types(path, content, "pre_tokenizer", allowed)
    *_, marks = tokenizer_json.steps(content["pre_tokenizer"])
    mark, where = marks["replacement"], marks["prepend_scheme"]
    tokenizer_json.check(path, "pre_tokenizer.replacement", mark, [_SPACE])
    scheme = "pre_tokenizer.prepend_scheme"
    tokenizer_json.check(path, scheme, where, ["always", "first"])


def _check_steps(path, content, family):
    steps = {_name(step): step for step in tokenizer_json.steps(content["normalizer"])}
    allowed = _OF_THE_MODEL if family.keeps_text else _STEPS
    needed = set(_QUOTES if family.joins_quotes else ())
    if not steps.keys().isdisjoint(_ACCENTS):
        needed.update(_ACCENTS)
    if list(steps) != [name for name in allowed if name in steps.keys() | needed]:
        raise UserError(
            f"{path}: normalizer has the steps {', '.join(steps) or 'of none'}, but this "
            f"kind of vocabulary supports {', '.join(allowed)}, in this order; the text of "
            "such a model cannot be split exactly, so use another model"
        )


def _name(step: Mapping) -> str:
    """The type of a step, and what it replaces unless that is by something unusual."""
    if step["type"] != "Replace":
        return step["type"]
    (pattern,) = step["pattern"].values()
    usual = (" ", _SPACE) if pattern == " {2,}" else ('"',)
    by = "" if step["content"] in usual else f" by {step['content']!r}"
    return f'Replace "{pattern}"{by}'
