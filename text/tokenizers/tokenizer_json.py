"""Reads and writes tokenizer.json, which describes a Hugging Face tokenizer in one file.

The file lists the steps from a text to ids and contains the vocabulary. Each kind of
tokenizer checks the steps and takes the vocabulary as that kind's own files, and writes a
file with which Hugging Face's AutoTokenizer gives our ids. A step that our tokenizer does
not take is refused by name. What transformers does differently is in docs/vocabularies.md.
"""

import json
from collections.abc import Collection, Iterable, Mapping

import tokenizers
from tokenizers import processors

from errors import UserError, setting
from files.folder_files import FolderFiles
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary

NAME = "tokenizer.json"


def find(files: FolderFiles) -> dict | None:
    """What the file in a folder contains; None if there is none.

    It is as today's versions of `tokenizers` write it.
    """
    return files.parse(NAME, _parse) if files.has(NAME) else None


def _parse(path, content):
    try:
        return json.loads(tokenizers.Tokenizer.from_buffer(content).to_str())
    except Exception as error:  # tokenizers raises no other class
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); copy it again, or pass the "
            f"{setting('vocab_file')} that it was made from"
        ) from error


def bert_settings(content: Mapping) -> dict[str, bool]:
    """The `TokenizerOptions` that BERT's normalizer decides."""
    for step in steps(content["normalizer"]):
        if step["type"] == "BertNormalizer":
            strips = step["strip_accents"]
            return {
                "do_lower_case": step["lowercase"],
                "strip_accents": step["lowercase"] if strips is None else strips,
                "split_cjk": step["handle_chinese_chars"],
            }
    return {}


def unigram_settings(content: Mapping) -> dict[str, bool]:
    """The same of a Unigram's steps."""
    types = {step["type"] for step in steps(content["normalizer"])}
    tokens = {token for token, *_ in content["model"]["vocab"]}
    if tokens.isdisjoint(("[CLS]", "<cls>")):
        return {}  # T5's text is kept as it is
    return {"do_lower_case": "Lowercase" in types, "strip_accents": "NFKD" in types}


def is_unigram(content: Mapping) -> bool:
    """Whether it is SentencePiece's."""
    return content["model"]["type"] == "Unigram"


# === Parts ===========================================================================


def check(path: str, part: str, value: object, allowed: list) -> None:
    """Refuses a value of a part of the file."""
    if value not in allowed:
        shown, *others = (json.dumps(x, ensure_ascii=False) for x in (value, *allowed))
        raise UserError(
            f"{path}: {part} is {shown:.80}, but only {' or '.join(others)} is supported "
            "for this kind of vocabulary; the text of such a model cannot be split "
            "exactly, so use another model"
        )


def check_model(path: str, content: Mapping, name: str, *allowed: object) -> None:
    """`check` of a value of the model."""
    check(path, f"model.{name}", content["model"][name], list(allowed))


def check_types(
    path: str, content: Mapping, part: str, allowed: list[list[str]]
) -> None:
    """Refuses other steps than these."""
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
    """The tokens by id, those that were added included: `special` ones may be."""
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
    """Refuses rows that have other special tokens, or in another order."""
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


def check_bert_words(path: str, content: Mapping) -> None:
    """Refuses other words than BERT's."""
    check_types(path, content, "normalizer", [["BertNormalizer"]])
    check_types(path, content, "pre_tokenizer", [["BertPreTokenizer"]])
    (normalizer,) = steps(content["normalizer"])
    check(path, "normalizer.clean_text", normalizer["clean_text"], [True])


def bpe_files(
    path: str, content: Mapping, special: Collection[str]
) -> tuple[bytes, bytes]:
    """The vocab.json and merges.txt of a BPE; arguments as for `tokens_of`."""
    check_model(path, content, "dropout", None)
    check_model(path, content, "byte_fallback", False)
    check_model(path, content, "ignore_merges", False)
    check_model(path, content, "continuing_subword_prefix", None, "")
    tokens = tokens_of(path, content, special)
    ids = {token: id for id, token in enumerate(tokens)}
    merges = ["#version: 0.2", *(" ".join(pair) for pair in content["model"]["merges"])]
    return (
        json.dumps(ids, ensure_ascii=False).encode(),
        "".join(f"{line}\n" for line in merges).encode(),
    )


# === Writing ===========================================================================


def special_tokens(vocabulary: Vocabulary) -> list[str]:
    """Those of a row, in the order of their ids."""
    ids = {*vocabulary.special_ids.values(), vocabulary.end_id}
    ids |= {vocabulary.document_end_id}
    return [vocabulary.tokens[id] for id in sorted(ids)]


def rows(vocabulary: Vocabulary) -> processors.TemplateProcessing:
    """What puts special tokens around one text and between two."""
    segment = vocabulary.second_segment

    def parts(ids, segment):
        return [f"{vocabulary.tokens[id]}:{segment}" for id in ids]

    def ending(segment):
        last = vocabulary.last_segment
        *others, end = vocabulary.tail
        return parts(others, segment) + parts([end], segment if last is None else last)

    head = parts(vocabulary.head, 0)
    between = parts(vocabulary.between, 0)
    ids = {*vocabulary.head, *vocabulary.between, *vocabulary.tail}
    return processors.TemplateProcessing(
        single=[*head, "$A:0", *ending(0)],
        pair=[*head, "$A:0", *between, f"$B:{segment}", *ending(segment)],
        special_tokens=[(vocabulary.tokens[id], id) for id in sorted(ids)],
    )


def text_of(made: tokenizers.Tokenizer, special: Iterable[str]) -> str:
    """The file; the special tokens are found in a text, except those it lacks."""
    made.add_special_tokens(
        [tokenizers.AddedToken(token, normalized=False) for token in special]
    )
    return json.dumps(json.loads(made.to_str()), ensure_ascii=False, indent=1) + "\n"
