"""Reads tokenizer.json, which describes a Hugging Face tokenizer in one file.

The file lists what is done to a text, step by step, and contains the vocabulary. `files`
recognizes the steps of the kinds of tokenizers here, and returns the vocabulary as the
files of that kind. Steps that no kind takes exactly are refused by name.
"""

import json
import os
from collections.abc import Mapping

from text.errors import UserError
from text.files import sources

NAME = "tokenizer.json"


def is_path(path: str) -> bool:
    """Whether a path is an existing tokenizer.json."""
    return os.path.basename(path) == NAME and sources.is_file(path)


def read(path: str) -> dict:
    """The content of a tokenizer.json.

    Raises:
        UserError: it is not one.
        OSError: it cannot be read.
    """
    with sources.opened(path) as file:
        content = file.read()
    try:
        said = json.loads(content)
        if not isinstance(said["model"]["vocab"], (dict, list)):
            raise ValueError("model.vocab is not a list of tokens")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise UserError(
            f"{path}: not a tokenizer.json, which has model.vocab ({error!r}); copy it "
            "again, or pass the --vocab_file it was made from"
        ) from error
    return said


def settings(content: Mapping) -> dict[str, bool]:
    """The `TokenizerOptions` that a tokenizer.json decides.

    Args:
        content: what `read` returns.
    Returns:
        do_lower_case, strip_accents and split_cjk; one that it does not decide, or that
        has no effect on its kind of vocabulary, is absent.
    """
    steps = {step.get("type"): step for step in _steps(content.get("normalizer"))}
    if "</w>" == content["model"].get("end_of_word_suffix"):
        return {}  # GPT's text is always lowercased; see --gpt_words
    if bert := steps.get("BertNormalizer"):
        lowers = bert.get("lowercase", True)
        strips = bert.get("strip_accents")
        return {
            "do_lower_case": lowers,
            "strip_accents": lowers if strips is None else strips,
            "split_cjk": bert.get("handle_chinese_chars", True),
        }
    if not steps.keys() & {"NFKD", "Lowercase", "StripAccents"}:
        return {}  # the text is kept as it is, as for RoBERTa and T5
    return {
        "do_lower_case": "Lowercase" in steps,
        "strip_accents": "StripAccents" in steps,
    }


def _steps(part) -> list[dict]:
    """The steps of a normalizer or pre-tokenizer, one after another."""
    if not part:
        return []
    if part.get("type") != "Sequence":
        return [part]
    parts = part.get("normalizers") or part.get("pretokenizers") or []
    return [step for inner in parts for step in _steps(inner)]
