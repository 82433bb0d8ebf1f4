"""Reads and writes tokenizer.json, which describes a Hugging Face tokenizer in one file.

The file lists the steps from a text to ids and contains the vocabulary. For each kind of
tokenizer here, one function checks the steps and returns the vocabulary as that kind's own
files, and another writes a file with which Hugging Face's AutoTokenizer gives our ids. A
step that our tokenizer does not take is refused by name. What transformers does differently
is in docs/vocabularies.md.
"""

import functools
import json
import os
from collections.abc import Collection, Iterable, Mapping

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from errors import UserError, setting
from files import inputs, sources
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary

NAME = "tokenizer.json"

_END = "</w>"  # of a word, in GPT's BPE


def path_in(folder: str) -> str:
    """Where the file is in the folder of a model."""
    return os.path.join(folder, NAME)


def is_path(path: str) -> bool:
    """Whether a path is an existing tokenizer.json."""
    return os.path.basename(path) == NAME and sources.is_file(path)


def read(path: str) -> dict:
    """The content of a tokenizer.json, as today's versions of `tokenizers` write it."""
    return _read(path, sources.status(path))


@functools.lru_cache(maxsize=2)  # its readers come one after another
def _read(path, status):
    del status  # with another one, it is another file
    content = sources.content(path)
    try:
        return json.loads(tokenizers.Tokenizer.from_buffer(content).to_str())
    except Exception as error:  # tokenizers raises no other class
        raise UserError(
            f"{path}: not a tokenizer.json ({error}); copy it again, or pass the "
            f"{setting('vocab_file')} that it was made from"
        ) from error


def settings(content: Mapping) -> dict[str, bool]:
    """The `TokenizerOptions` that what `read` returns decides.

    One that it does not decide, or that has no effect on its kind of vocabulary, is absent.
    """
    if is_gpt(content):
        return {}  # its text is always lowercased
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
    """The vocab.txt of WordPiece, with the special tokens of its models."""
    content = read(path)
    _check_bert_words(path, content)
    check_model(path, content, "unk_token", special.names[1])
    check_model(path, content, "continuing_subword_prefix", special.continuation)
    # 100 in nearly all files, 200 in the release; see docs/vocabularies.md.
    check_model(path, content, "max_input_chars_per_word", 100, 200)
    tokens = tokens_of(path, content, special.tokens)
    check_layout(path, content, special)
    written = "".join(f"{token}\n" for token in tokens).encode()
    for id, (token, line) in enumerate(
        zip(tokens, inputs.lines(path, block=written), strict=False)
    ):
        if token != line.strip():
            raise UserError(
                f"{path}: token {id} of model.vocab is {token!r}, which one line of a "
                "vocab.txt cannot hold; use a model without such a token"
            )
    return written


def check_same_tokens(vocabulary: Vocabulary) -> None:
    """Refuses a vocab.txt that the tokenizer.json in its folder contradicts.

    Added tokens, which a vocab.txt need not list, may follow.
    """
    path = path_in(os.path.dirname(vocabulary.path))
    if not is_path(path):
        return
    content = read(path)
    if not is_wordpiece(content):
        raise UserError(
            f"{path}: model.type is {content['model']['type']}, but {vocabulary.path} next "
            "to it is for WordPiece; move away the one that does not belong to the model"
        )
    tokens = {added["id"]: added["content"] for added in content["added_tokens"]}
    tokens |= {id: token for token, id in content["model"]["vocab"].items()}
    for id, token in enumerate(vocabulary.tokens):
        is_known = token and vocabulary.ids[token] == id  # not repeated later
        if is_known and tokens.get(id, "").strip() != token:
            raise UserError(
                f"{vocabulary.path}: token {id} is {token!r}, but {tokens.get(id)!r} in "
                f"{path}; move away the one that does not belong to the model"
            )


def gpt_files(path: str, special: SpecialTokens) -> tuple[bytes, bytes]:
    """The vocab.json and merges.txt of GPT-1."""
    content = read(path)
    _check_bert_words(path, content)
    (normalizer,) = steps(content["normalizer"])
    for name in ("lowercase", "strip_accents", "handle_chinese_chars"):
        allowed = [True, None] if name == "strip_accents" else [True]
        check(path, f"normalizer.{name}", normalizer[name], allowed)
    check_model(path, content, "unk_token", special.names[1])
    check_model(path, content, "fuse_unk", False)
    return _bpe_files(path, content, special)


def byte_bpe_files(path: str, special: SpecialTokens) -> tuple[bytes, bytes]:
    """The vocab.json and merges.txt of RoBERTa."""
    content = read(path)
    check(path, "normalizer", content["normalizer"], [None])
    check_types(path, content, "pre_tokenizer", [["ByteLevel"]])
    (pre_tokenizer,) = steps(content["pre_tokenizer"])
    for name, value in (("add_prefix_space", False), ("use_regex", True)):
        check(path, f"pre_tokenizer.{name}", pre_tokenizer[name], [value])
    check_model(path, content, "end_of_word_suffix", None, "")
    check_layout(path, content, special)
    return _bpe_files(path, content, special)


def _check_bert_words(path, content):
    check_types(path, content, "normalizer", [["BertNormalizer"]])
    check_types(path, content, "pre_tokenizer", [["BertPreTokenizer"]])
    (normalizer,) = steps(content["normalizer"])
    check(path, "normalizer.clean_text", normalizer["clean_text"], [True])


def _bpe_files(path, content, special):
    check_model(path, content, "dropout", None)
    check_model(path, content, "byte_fallback", False)
    check_model(path, content, "ignore_merges", False)
    check_model(path, content, "continuing_subword_prefix", None, "")
    tokens = tokens_of(path, content, special.tokens)
    ids = {token: id for id, token in enumerate(tokens)}
    merges = ["#version: 0.2", *(" ".join(pair) for pair in content["model"]["merges"])]
    return (
        json.dumps(ids, ensure_ascii=False).encode(),
        "".join(f"{line}\n" for line in merges).encode(),
    )


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


# === Writing ===========================================================================


def wordpiece(vocabulary: Vocabulary, flags: Mapping[str, bool], longest: int) -> str:
    """BERT's.

    Args:
        flags: the resolved do_lower_case, strip_accents and split_cjk.
        longest: how many characters a word may have that is not unknown.
    """
    unknown = vocabulary.tokens[vocabulary.unk_id]
    made = tokenizers.Tokenizer(
        models.WordPiece(
            vocabulary.ids, unk_token=unknown, max_input_chars_per_word=longest
        )
    )
    made.normalizer = normalizers.BertNormalizer(
        lowercase=flags["do_lower_case"],
        strip_accents=flags["strip_accents"],
        handle_chinese_chars=flags["split_cjk"],
    )
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.post_processor = rows(vocabulary)
    return text_of(made, special_tokens(vocabulary))


def byte_bpe(vocabulary: Vocabulary, merges: list[tuple[str, str]]) -> str:
    """RoBERTa's."""
    made = tokenizers.Tokenizer(models.BPE(vocabulary.ids, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    first, end = (
        (vocabulary.tokens[id], id) for id in (vocabulary.cls_id, vocabulary.sep_id)
    )
    made.post_processor = processors.RobertaProcessing(
        end, first, add_prefix_space=False
    )
    return text_of(made, special_tokens(vocabulary))


def gpt(vocabulary: Vocabulary, merges: list[tuple[str, str]], end: str) -> str:
    """GPT-1's; `end` is the mark of a word's end."""
    unknown = vocabulary.tokens[vocabulary.unk_id]
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary.ids, merges, unk_token=unknown, end_of_word_suffix=end)
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder(suffix=end)
    return text_of(made, special_tokens(vocabulary))


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
