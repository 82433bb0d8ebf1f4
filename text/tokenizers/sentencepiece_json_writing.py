"""Writes a SentencePiece model as a tokenizer.json that gives the same ids.

Hugging Face's own classes take other steps, which give other ids: they set off marks such
as the point of 3.5, do not compose Hangul, and drop more kinds of marks. So each step of
our tokenizer is spelled out here, with Python's tables of characters.
"""

import base64
import functools
import json
import sys
import unicodedata
from collections.abc import Callable, Mapping

import tokenizers
from tokenizers import decoders, models

from text.tokenizers import sentencepiece_files, tokenizer_json_writing
from text.tokenizers.sentencepiece_files import Specification

SPACE = "\u2581"
UNIGRAM = 1
MARK = " "  # after a piece that no text is to become, because no spaces are left then
_CASED = r"(?!\p{Case_Ignorable})\p{Cased}"
# As str.lower knows it; what precedes the letter is not replaced.
_FINAL_SIGMA = (
    rf"{_CASED}\p{{Case_Ignorable}}*\K\u03a3(?!\p{{Case_Ignorable}}*{_CASED})"
)


def difference(tokenizer) -> str | None:
    """What `written` does not do as a `SentencePiece`, if there is anything."""
    if sentencepiece_files.specification(tokenizer.model).model_type != UNIGRAM:
        return "its model is not a Unigram model, which tokenizer.json could describe"
    if tokenizer.splits:
        names = [tokenizer.vocabulary.tokens[id] for id in tokenizer.splits]
        return (
            f"{len(names)} of its pieces, such as {names[0]!r}, are split into a number "
            "and a comma after all pieces are chosen; transformers chooses without them, "
            "which gives other ids for some numbers with commas"
        )
    return None


def written(tokenizer) -> str | None:
    """The file for a `SentencePiece`; None if there can be none."""
    said = sentencepiece_files.specification(tokenizer.model)
    if said.model_type != UNIGRAM:
        return None
    vocabulary, pieces = tokenizer.vocabulary, []
    special = {*tokenizer_json_writing.special_tokens(vocabulary)}
    sentinels = {*vocabulary.sentinels} if tokenizer.family.num_sentinels else ()
    for id, (token, score, is_control) in enumerate(
        sentencepiece_files.pieces(tokenizer.extended_model)
    ):
        if id in sentinels:
            token, is_control = token.removeprefix(SPACE), True
        if is_control:
            special.add(token)
        pieces.append((token + MARK * (id in tokenizer.splits), score))
    made = tokenizers.Tokenizer(models.Unigram(pieces, vocabulary.unk_id))
    made.decoder = decoders.Metaspace()
    made.post_processor = tokenizer_json_writing.rows(vocabulary)
    content = json.loads(made.to_str())
    steps = normalizer(tokenizer.cleaner, said, tokenizer.composes_hangul)
    content["normalizer"] = steps
    made = tokenizers.Tokenizer.from_str(json.dumps(content))
    order = {token: id for id, (token, _) in enumerate(pieces)}
    return tokenizer_json_writing.text_of(made, sorted(special, key=order.get))


def config(tokenizer) -> dict[str, object]:
    """The tokenizer_config.json for a `SentencePiece`."""
    names = tokenizer.vocabulary.special_ids
    tokens = tokenizer.vocabulary.tokens
    said = {
        # Their own classes would take their own steps.
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{f"{name[1:-1].lower()}_token": tokens[id] for name, id in names.items()},
        "eos_token": tokens[tokenizer.vocabulary.end_id],
    }
    if "mask_token" in said:
        mask = {"content": said["mask_token"], "lstrip": True, "rstrip": False}
        kind = {"__type": "AddedToken", "normalized": False, "single_word": False}
        said["mask_token"] = kind | mask
    if tokenizer.family.keeps_text:
        return said | {
            "model_input_names": ["input_ids", "attention_mask"],
            "extra_ids": tokenizer.family.num_sentinels,
        }
    return said | {
        "do_lower_case": tokenizer.cleaner.do_lower_case,
        "keep_accents": not tokenizer.cleaner.strip_accents,
        "remove_space": True,
        "padding_side": "left" if tokenizer.family.special.cls_last else "right",
    }


def settings_of_config(said: Mapping) -> dict[str, bool | None]:
    """The `Tokenizer.hugging_face_settings` of a tokenizer_config.json like `config`."""
    keeps = said.get("keep_accents")
    return {
        "do_lower_case": said.get("do_lower_case"),
        "strip_accents": None if keeps is None else not keeps,
    }


def normalizer(cleaner, said: Specification, composes: bool) -> dict:
    """The steps before the pieces are chosen.

    Args:
        cleaner: the `Cleaner` of texts.
        said: what the model does itself.
        composes: whether this composes decomposed characters.
    """
    steps = _steps_of_cleaner(cleaner)
    # Theirs looks for at most five bytes at once, which is too short for Hangul.
    steps += [{"type": "NFC"}] if composes else []
    if said.charsmap:
        encoded = base64.b64encode(said.charsmap).decode()
        steps.append({"type": "Precompiled", "precompiled_charsmap": encoded})
    if said.removes_spaces:
        steps += [_replace(" {2,}", " "), _replace("^ | $", "")]
    if said.adds_space:
        steps.append({"type": "Prepend", "prepend": SPACE})
    return {"type": "Sequence", "normalizers": [*steps, _replace(" ", SPACE)]}


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
