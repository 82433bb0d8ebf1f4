"""Turns a tokenizer.json with a Unigram model into a SentencePiece model, and the reverse.

The pieces, their scores and the map of characters are the same. What is done to the text
before, such as lowercasing, is not part of a .model file: see
`tokenizer_json.unigram_settings`.

Hugging Face's own classes take other steps, which give other ids: they set off marks such
as the point of 3.5, do not compose Hangul, and drop more kinds of marks. So what is written
spells out each step of our tokenizer, with Python's tables of characters.
"""

import base64
import collections
import functools
import json
import re
import sys
import unicodedata
from collections.abc import Callable, Mapping

import tokenizers
from tokenizers import decoders, models

from errors import UserError, setting
from text.tokenizers import sentencepiece_files, tokenizer_json
from text.tokenizers.sentencepiece_files import Piece, Specification

_SPACE = "\u2581"
_UNIGRAM = 1
_MARK = " "  # after a piece that no text is to become, because no spaces are left then
_CASED = r"(?!\p{Case_Ignorable})\p{Cased}"
# As str.lower knows it; what precedes the letter is not replaced.
_FINAL_SIGMA = (
    rf"{_CASED}\p{{Case_Ignorable}}*\K\u03a3(?!\p{{Case_Ignorable}}*{_CASED})"
)
# Set before a mark in a text while their map of characters works, which takes a character
# with its marks for one and, if it replaces that, drops them. No text has this character.
_APART = "\ufdd0"
# What may belong to the character before it; the map has no Hangul, which is left out. At
# the beginning of a text, their alignment would break.
_ATTACHED = r"(?<=.)(?=[\p{M}\x{200c}\x{200d}\x{e33}\x{eb3}\x{ff9e}\x{ff9f}])"
_SPECIAL = re.compile(r"<.+>|\[.+\]")
# The steps before the model, in order; each of them may be missing.
_QUOTES = ['Replace "``"', "Replace \"''\""]
_ACCENTS = ["NFKD", "StripAccents"]
_OF_THE_MODEL = ["Strip", "Precompiled", 'Replace " {2,}"']
_STEPS = ["Strip", *_QUOTES, *_ACCENTS, "Lowercase", *_OF_THE_MODEL[1:]]


def tokens_of(path: str, content: Mapping) -> list[str]:
    """The pieces by id; after a mark that was added, the rest of a word would begin
    another.
    """
    for token in content["added_tokens"]:
        if not _SPECIAL.fullmatch(mark := token["content"]):
            raise UserError(
                f"{path}: added_tokens has {mark!r}, which is cut out of words, so that "
                "each part of them begins a word; SentencePiece does not do this, so pass "
                f"the model's spiece.model with {setting('vocab_file')}, or use another "
                "model"
            )
    added = [token["content"] for token in content["added_tokens"]]
    return tokenizer_json.tokens_of(path, content, added)


def model(path: str, content: Mapping, family) -> bytes:
    """The .model file that a tokenizer.json stands for, for a `Family`."""
    unigram, special = content["model"], family.special
    tokens = _without_sentinels(path, tokens_of(path, content), special.sentinels)
    unknown = special.names[1]
    tokenizer_json.check_model(path, content, "byte_fallback", False)
    tokenizer_json.check_model(path, content, "unk_id", tokens.index(unknown))
    tokenizer_json.check_layout(path, content, special)
    specification = _specification(content)
    if not _is_ours(content, family, specification):
        _check_words(path, content)
        _check_steps(path, content, family)
    kinds = {token: Piece.CONTROL for token in special.tokens}
    for added in content["added_tokens"]:
        kind = Piece.CONTROL if added["special"] else Piece.USER_DEFINED
        kinds.setdefault(added["content"], kind)
    kinds[unknown] = Piece.UNKNOWN
    scores = dict(unigram["vocab"])
    pieces = []
    for token in tokens:
        text, score = token.removesuffix(_MARK), scores.get(token, 0.0)
        pieces.append((text, score, kinds.get(token, Piece.NORMAL)))
    return sentencepiece_files.model(pieces, specification)


def _specification(content) -> Specification:
    """What the model does with a text."""
    steps = {step["type"]: step for step in tokenizer_json.steps(content["normalizer"])}
    encoded = steps.get("Precompiled", {}).get("precompiled_charsmap", "")
    return Specification(base64.b64decode(encoded))


def _is_ours(content, family, specification) -> bool:
    """Whether text is split as `to_json` writes it."""
    flags = tokenizer_json.unigram_settings(content)
    cleaner = family.cleaner(
        flags.get("do_lower_case"), flags.get("strip_accents", True)
    )
    composes = "NFC" in (s["type"] for s in tokenizer_json.steps(content["normalizer"]))
    written = normalizer(cleaner, specification, composes)
    return content["pre_tokenizer"] is None and (
        _without_tables(content["normalizer"]) == _without_tables(written)
    )


def _without_tables(normalizer) -> list[dict]:
    """The steps without the characters of classes, which depend on Python's version."""
    return [
        step | {"pattern": {"Regex": "[]"}}
        if "\\x{" in str(step.get("pattern", ""))
        else step
        for step in tokenizer_json.steps(normalizer)
    ]


def _without_sentinels(path, tokens, sentinels):
    """The pieces of the .model file; `Family.extend` adds the others to it."""
    if not sentinels:
        return tokens
    names = [sentinel.removeprefix(_SPACE) for sentinel in reversed(sentinels)]
    if tokens[-len(names) :] != names:
        raise UserError(
            f"{path}: the vocabulary does not end with {names[0]} to {names[-1]}, the "
            "tokens that stand for parts of a text; use a model that has these"
        )
    return tokens[: -len(names)]


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


# === Writing ===========================================================================


def difference(tokenizer) -> str | None:
    """What `to_json` does not do as a `SentencePiece`, if there is anything."""
    if sentencepiece_files.specification(tokenizer.model).model_type != _UNIGRAM:
        return "its model is not a Unigram model, which tokenizer.json could describe"
    if tokenizer.splits:
        names = [tokenizer.vocabulary.tokens[id] for id in tokenizer.splits]
        return (
            f"{len(names)} of its pieces, such as {names[0]!r}, are split into a number "
            "and a comma after all pieces are chosen; transformers chooses without them, "
            "which gives other ids for some numbers with commas"
        )
    return None


def to_json(tokenizer) -> str | None:
    """The file for a `SentencePiece`; None if there can be none."""
    specification = sentencepiece_files.specification(tokenizer.model)
    if specification.model_type != _UNIGRAM:
        return None
    vocabulary, pieces = tokenizer.vocabulary, []
    special = {*tokenizer_json.special_tokens(vocabulary)}
    sentinels = {*tokenizer.family.special.sentinels}
    for id, (token, score, is_control) in enumerate(
        sentencepiece_files.pieces(tokenizer.extended_model)
    ):
        if token in sentinels:
            token, is_control = token.removeprefix(_SPACE), True
        if is_control:
            special.add(token)
        pieces.append((token + _MARK * (id in tokenizer.splits), score))
    made = tokenizers.Tokenizer(models.Unigram(pieces, vocabulary.unk_id))
    made.decoder = decoders.Metaspace()
    made.post_processor = tokenizer_json.rows(vocabulary)
    content = json.loads(made.to_str())
    steps = normalizer(tokenizer.cleaner, specification, tokenizer.composes_hangul)
    content["normalizer"] = steps
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    order = {token: id for id, (token, _) in enumerate(pieces)}
    return tokenizer_json.text_of(made, sorted(special, key=order.get))


def config(tokenizer) -> dict[str, object]:
    """The tokenizer_config.json for a `SentencePiece`."""
    names = tokenizer.vocabulary.special_ids
    tokens = tokenizer.vocabulary.tokens
    values = {
        # Their own classes would take their own steps.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name[1:-1].lower()}_token": tokens[id] for name, id in names.items()},
        "eos_token": tokens[tokenizer.vocabulary.end_id],
    }
    if "mask_token" in values:
        mask = {"content": values["mask_token"], "lstrip": True, "rstrip": False}
        kind = {"__type": "AddedToken", "normalized": False, "single_word": False}
        values["mask_token"] = kind | mask
    if tokenizer.family.keeps_text:
        return values | {
            "model_input_names": ["input_ids", "attention_mask"],
            "extra_ids": len(tokenizer.family.special.sentinels),
        }
    return values | {
        "do_lower_case": tokenizer.cleaner.do_lower_case,
        "keep_accents": not tokenizer.cleaner.strip_accents,
        "remove_space": True,
        "padding_side": "left" if tokenizer.family.special.cls_last else "right",
    }


def settings_of_config(config: Mapping) -> dict[str, bool | None]:
    """The flags of text in a tokenizer_config.json; None where it leaves one open."""
    keeps = config.get("keep_accents")
    return {
        "do_lower_case": config.get("do_lower_case"),
        "strip_accents": None if keeps is None else not keeps,
    }


def normalizer(cleaner, specification: Specification, composes: bool) -> dict:
    """The steps before the pieces are chosen.

    Args:
        cleaner: the `Cleaner` of texts.
        specification: what the model does itself.
        composes: whether this composes decomposed characters.
    """
    steps = _steps_of_cleaner(cleaner)
    if specification.charsmap:
        encoded = base64.b64encode(specification.charsmap).decode()
        charsmap = {"type": "Precompiled", "precompiled_charsmap": encoded}
        steps += [_replace(_ATTACHED, _APART), charsmap]
        if composes:
            steps += [_replace(_before_composed_marks(), ""), {"type": "NFC"}]
        steps += [_replace(_APART, "")]
    if specification.removes_spaces:
        steps += [_replace(" {2,}", " "), _replace("^ | $", "")]
    if specification.adds_space:
        steps.append({"type": "Prepend", "prepend": _SPACE})
    return {"type": "Sequence", "normalizers": [*steps, _replace(" ", _SPACE)]}


def _steps_of_cleaner(cleaner) -> list[dict]:
    steps = []
    if cleaner.collapses_spaces:
        steps += [_replace(f"{_characters(str.isspace)}+", " "), _replace("^ | $", "")]
    if cleaner.joins_quotes:
        steps += [_replace("``|''", '"')]
    if cleaner.strip_accents:
        marks = _characters(unicodedata.combining)
        steps += [{"type": "NFKD"}, _replace(marks, "")]
    if cleaner.do_lower_case:
        steps += [_replace(_FINAL_SIGMA, "\u03c2"), {"type": "Lowercase"}]
    return steps


def _replace(pattern: str, content: str) -> dict:
    return {"type": "Replace", "pattern": {"Regex": pattern}, "content": content}


@functools.cache
def _before_composed_marks() -> str:
    """A regular expression for each `_APART` before a mark that SentencePiece composes.

    It composes a letter with the marks that directly follow it, in the order in which the
    character has them. NFC would pass over others, and reorder them.
    """
    before = collections.defaultdict(set)  # a mark -> letters, and marks of letters
    for point in range(sys.maxunicode + 1):
        letter, *mark = _decompose(chr(point))
        if mark and unicodedata.is_normalized("NFC", chr(point)):
            before[mark[0]].add(_decompose(letter)[-1])
    # Two marks that nothing sets apart are from one character, which is not composed.
    ways = (
        rf"(?<=[{''.join(sorted(befores))}]{_APART})(?={mark}(?!\p{{M}}))"
        for mark, befores in sorted(before.items())
    )
    return f"{_APART}(?:{'|'.join(ways)})"


def _decompose(character) -> list[str]:
    """A letter and a mark, or what cannot be decomposed."""
    codes = unicodedata.decomposition(character).split()
    is_pair = len(codes) == 2 and codes[0][0] != "<"
    return [chr(int(code, 16)) for code in codes] if is_pair else [character]


@functools.cache
def _characters(belongs: Callable[[str], object]) -> str:
    """A regular expression for the characters that belong to a class."""
    points = [p for p in range(sys.maxunicode + 1) if belongs(chr(p))]
    parts, first = [], None
    for point, following in zip(points, [*points[1:], None], strict=True):
        first = point if first is None else first
        if following != point + 1:
            parts.append(f"\\x{{{first:x}}}-\\x{{{point:x}}}")
            first = None
    return f"[{''.join(parts)}]"
