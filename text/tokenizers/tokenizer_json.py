"""Reads tokenizer.json, which describes a Hugging Face tokenizer in one file.

The file lists the steps from a text to ids and contains the vocabulary. For each kind of
tokenizer here, a function checks the steps and returns the vocabulary as that kind's own
files. A step that our tokenizer does not take is refused by name.
"""

import functools
import json
import os
from collections.abc import Collection, Mapping

import tokenizers

from errors import UserError
from text.files import sources
from text.tokenizers.vocabulary import SpecialTokens

NAME = "tokenizer.json"

_END = "</w>"  # of a word, in GPT's BPE


def path_in(folder: str) -> str:
    """Where the file is in the folder of a model."""
    return os.path.join(folder, NAME)


def is_path(path: str) -> bool:
    """Whether a path is an existing tokenizer.json."""
    return os.path.basename(path) == NAME and sources.is_file(path)


def read(path: str) -> dict:
    """The content of a tokenizer.json, as today's versions of `tokenizers` write it.

    Raises:
        UserError: it is not one.
        OSError: it cannot be read.
    """
    return _read(path, sources.status(path))


@functools.lru_cache(maxsize=2)  # its readers come one after another
def _read(path, status):
    del status  # with another one, it is another file
    with sources.opened(path) as file:
        content = file.read()
    try:
        return json.loads(tokenizers.Tokenizer.from_buffer(content).to_str())
    except Exception as error:  # tokenizers raises no other class
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); copy it again, or pass the "
            "--vocab_file that it was made from"
        ) from error


def settings(content: Mapping) -> dict[str, bool]:
    """The `TokenizerOptions` that a tokenizer.json decides.

    Args:
        content: what `read` returns.
    Returns:
        do_lower_case, strip_accents and split_cjk; one that it does not decide, or that
        has no effect on its kind of vocabulary, is absent.
    """
    if is_gpt(content):
        return {}  # its text is always lowercased; see --gpt_words
    by_type = {step["type"]: step for step in steps(content["normalizer"])}
    if bert := by_type.get("BertNormalizer"):
        strips = bert["strip_accents"]
        return {
            "do_lower_case": bert["lowercase"],
            "strip_accents": bert["lowercase"] if strips is None else strips,
            "split_cjk": bert["handle_chinese_chars"],
        }
    tokens = {token for token, *_ in content["model"]["vocab"]}
    if not is_unigram(content) or tokens.isdisjoint(("[CLS]", "<cls>")):
        return {}  # RoBERTa's and T5's text is kept as it is
    return {"do_lower_case": "Lowercase" in by_type, "strip_accents": "NFKD" in by_type}


def is_wordpiece(content: Mapping) -> bool:
    return content["model"]["type"] == "WordPiece"


def is_byte_level(content: Mapping) -> bool:
    """Whether it is the byte-level BPE of RoBERTa and GPT-2."""
    types = {step["type"] for step in steps(content["pre_tokenizer"])}
    return content["model"]["type"] == "BPE" and "ByteLevel" in types


def is_gpt(content: Mapping) -> bool:
    """Whether it is GPT-1's BPE."""
    model = content["model"]
    return model["type"] == "BPE" and model["end_of_word_suffix"] == _END


def is_unigram(content: Mapping) -> bool:
    """Whether it is SentencePiece's."""
    return content["model"]["type"] == "Unigram"


# === Vocabularies ====================================================================


def vocab_txt(path: str, special: SpecialTokens) -> bytes:
    """The vocab.txt of WordPiece.

    Args:
        special: the special tokens of its models.
    Raises:
        UserError: names a part that our tokenizer does not do.
    """
    content = read(path)
    _check_bert_words(path, content)
    model = content["model"]
    check(path, "model.unk_token", model["unk_token"], [special.names[1]])
    prefix = model["continuing_subword_prefix"]
    check(path, "model.continuing_subword_prefix", prefix, [special.continuation])
    # 100 in nearly all files, 200 in the release; see docs/differences.md.
    longest = model["max_input_chars_per_word"]
    check(path, "model.max_input_chars_per_word", longest, [100, 200])
    tokens = tokens_of(path, content, special.tokens)
    for token in tokens:
        check(path, "a token of model.vocab", token, [token.strip()])
    check_layout(path, content, special)
    return "".join(f"{token}\n" for token in tokens).encode()


def gpt_files(path: str, special: SpecialTokens) -> tuple[bytes, bytes]:
    """The vocab.json and merges.txt of GPT-1; arguments and errors as for `vocab_txt`."""
    content = read(path)
    _check_bert_words(path, content)
    (normalizer,) = steps(content["normalizer"])
    check(path, "normalizer.lowercase", normalizer["lowercase"], [True])
    check(path, "normalizer.strip_accents", normalizer["strip_accents"], [None, True])
    chinese = normalizer["handle_chinese_chars"]
    check(path, "normalizer.handle_chinese_chars", chinese, [True])
    check(path, "model.unk_token", content["model"]["unk_token"], [special.names[1]])
    check(path, "model.fuse_unk", content["model"]["fuse_unk"], [False])
    return _bpe_files(path, content, special)


def byte_bpe_files(path: str, special: SpecialTokens) -> tuple[bytes, bytes]:
    """The vocab.json and merges.txt of RoBERTa; see `gpt_files`."""
    content = read(path)
    check(path, "normalizer", content["normalizer"], [None])
    check_types(path, content, "pre_tokenizer", [["ByteLevel"]])
    (pre_tokenizer,) = steps(content["pre_tokenizer"])
    for name, value in (("add_prefix_space", False), ("use_regex", True)):
        check(path, f"pre_tokenizer.{name}", pre_tokenizer[name], [value])
    suffix = content["model"]["end_of_word_suffix"]
    check(path, "model.end_of_word_suffix", suffix, [None, ""])
    check_layout(path, content, special)
    return _bpe_files(path, content, special)


def _check_bert_words(path, content):
    check_types(path, content, "normalizer", [["BertNormalizer"]])
    check_types(path, content, "pre_tokenizer", [["BertPreTokenizer"]])
    (normalizer,) = steps(content["normalizer"])
    check(path, "normalizer.clean_text", normalizer["clean_text"], [True])


def _bpe_files(path, content, special):
    model = content["model"]
    check(path, "model.dropout", model["dropout"], [None])
    check(path, "model.byte_fallback", model["byte_fallback"], [False])
    check(path, "model.ignore_merges", model["ignore_merges"], [False])
    prefix = model["continuing_subword_prefix"]
    check(path, "model.continuing_subword_prefix", prefix, [None, ""])
    tokens = tokens_of(path, content, special.tokens)
    ids = {token: id for id, token in enumerate(tokens)}
    merges = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    return (
        json.dumps(ids, ensure_ascii=False).encode(),
        "".join(f"{line}\n" for line in merges).encode(),
    )


# === Parts ===========================================================================


def check(path: str, part: str, value: object, allowed: list) -> None:
    """Refuses a value of a part of the file.

    Raises:
        UserError: it is not among the allowed ones.
    """
    if value not in allowed:
        known = " or ".join(json.dumps(each, ensure_ascii=False) for each in allowed)
        raise UserError(
            f"{path}: {part} is {json.dumps(value, ensure_ascii=False):.80}, but only "
            f"{known} is supported for this kind of vocabulary; the text of such a model "
            "cannot be split exactly, so use another model"
        )


def check_types(
    path: str, content: Mapping, part: str, allowed: list[list[str]]
) -> None:
    """Refuses other steps than these; arguments and errors as for `check`."""
    check(path, part, [step["type"] for step in steps(content[part])], allowed)


def steps(part: Mapping | None) -> list[dict]:
    """The steps of a normalizer, pre-tokenizer or post-processor, in order."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    keys = ("normalizers", "pretokenizers", "processors")
    (parts,) = (part[key] for key in keys if key in part)
    return [step for inner in parts for step in steps(inner)]


def tokens_of(path: str, content: Mapping, special: Collection[str]) -> list[str]:
    """The tokens by id, those that were added included.

    Args:
        special: the tokens that may be added.
    Raises:
        UserError: another token was added, or the ids are not 0, 1, 2 and so on.
    """
    vocabulary = content["model"]["vocab"]
    if isinstance(vocabulary, list):
        vocabulary = {token: id for id, (token, _) in enumerate(vocabulary)}
    ids = dict(vocabulary)
    for added in content["added_tokens"]:
        token = added["content"]
        if token not in special:
            raise UserError(
                f"{path}: added_tokens has {token!r}, which is cut out of a text before "
                "its words are found; this is not supported, except for the special "
                f"tokens {' '.join(special)}, so use a model without it"
            )
        ids[token] = added["id"]
    tokens = dict(zip(ids.values(), ids, strict=True))
    if sorted(tokens) != list(range(len(ids))):
        raise UserError(
            f"{path}: the ids of model.vocab and added_tokens are not 0 to "
            f"{len(ids) - 1}, each once; use a file that lists every id"
        )
    return [tokens[id] for id in range(len(ids))]


def check_layout(path: str, content: Mapping, special: SpecialTokens) -> None:
    """Refuses rows that have other special tokens, or in another order.

    Raises:
        UserError: the post-processor makes such rows.
    """
    _, _, cls, sep, _ = special.names
    first = [cls] if cls and not special.cls_last else []
    last = [cls] if special.cls_last else []
    between = [sep] * special.separators
    expected = [[*first, "A", sep, *last], [*first, "A", *between, "B", sep, *last]]
    check(path, "post_processor", _layout(content["post_processor"]), [expected])


def _layout(processor) -> list[list[str]]:
    """The rows of one text, A, and of two, A and B."""
    rows = [["A"], ["A", "B"]]
    for step in steps(processor):
        if step["type"] == "TemplateProcessing":
            rows = [
                [next(iter(part.values()))["id"] for part in step[name]]
                for name in ("single", "pair")
            ]
        elif step["type"] in ("BertProcessing", "RobertaProcessing"):
            cls, sep = step["cls"][0], step["sep"][0]
            between = [sep] * (1 + (step["type"] == "RobertaProcessing"))
            rows = [[cls, "A", sep], [cls, "A", *between, "B", sep]]
    return rows
