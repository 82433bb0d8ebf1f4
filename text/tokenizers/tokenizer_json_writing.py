"""Writes tokenizer.json, so that Hugging Face's AutoTokenizer gives our ids.

`tokenizer_json` reads it back. What transformers does differently is in
docs/differences.md.
"""

import json
from collections.abc import Iterable, Mapping

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from text.tokenizers.vocabulary import Vocabulary


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
    """GPT-1's with Hugging Face's words; `end` is the mark of a word's end."""
    unknown = vocabulary.tokens[vocabulary.unk_id]
    made = tokenizers.Tokenizer(
        models.BPE(vocabulary.ids, merges, unk_token=unknown, end_of_word_suffix=end)
    )
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder(suffix=end)
    return text_of(made, special_tokens(vocabulary))


# === Parts ===========================================================================


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
