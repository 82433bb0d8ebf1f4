"""ModernBERT's vocabulary: byte-level BPE of text in form C, with BERT's special tokens.

Runs of spaces and some other tokens are cut out of a text before its words are found. The
vocabulary is a tokenizer.json, or the vocab.json and merges.txt that are in it.
"""

import json

import numpy as np
import tokenizers
from tokenizers import normalizers

from errors import UserError
from family.modern_bert import normal_form
from files import json_files
from text.tokenizers import tokenizer_json
from text.tokenizers.bpe import ByteBpe, ByteBpeKind
from text.tokenizers.kind import hugging_face_classes
from text.tokenizers.tokenizer import HuggingFaceFiles
from text.tokenizers.vocabulary import SpecialTokens

SPECIAL = SpecialTokens(
    ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    second_segment=0,
    continuation="",  # it is a word's beginning that is marked, with its space
)
# Tokens that a vocabulary may have and that are found in a text as they are; the longest
# that fits is taken.
CUT_OUT = (
    *(" " * number for number in range(2, 33)),
    *(f"[unused{number}]" for number in range(1000)),
    *(f"|||{what}|||" for what in ("IP_ADDRESS", "EMAIL_ADDRESS", "PHONE_NUMBER")),
)
# Tokens that it may have, too, and that are special: in a text they are like any other.
_NEVER = ("<|padding|>", "<|endoftext|>")
_ONLY = ("lstrip", "rstrip", "single_word")


class ModernBertBpe(ByteBpe):
    """Turns text into pieces exactly like Hugging Face's tokenizer of a ModernBERT.

    Attributes:
        cut_out: those of CUT_OUT that its vocabulary has.
    """

    def __init__(self, vocabulary, merges):
        self.cut_out = [token for token in CUT_OUT if token in vocabulary.ids]
        added = [tokenizers.AddedToken(t, normalized=True) for t in self.cut_out]
        super().__init__(
            vocabulary, merges, normalizer=normalizers.NFC(), cut_out=added
        )
        self._is_cut_out = np.zeros(len(vocabulary), bool)
        self._is_cut_out[[vocabulary.ids[token] for token in self.cut_out]] = True

    def hugging_face(self):
        names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            **dict(zip(names, SPECIAL.tokens, strict=True)),
            "model_input_names": ["input_ids", "attention_mask"],
            "clean_up_tokenization_spaces": False,
        }
        rows = tokenizer_json.rows(self.vocabulary)
        content = json_files.parse(self.json(rows).encode())
        for added in content["added_tokens"]:
            # As in the released ones, the space before it is part of the mask.
            added["lstrip"] = added["content"] == self.vocabulary.mask
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        return HuggingFaceFiles(config, text)

    def encode_words(self, text):
        """A word also begins after what is cut out."""
        ids, starts = super().encode_words(text)
        is_cut_out = self._is_cut_out[np.frombuffer(ids, self.vocabulary.id_type)]
        starts = np.frombuffer(starts, bool).copy()
        starts[1:] |= is_cut_out[:-1]
        return ids, starts.tobytes()

    def encode_with_offsets(self, text):
        """See `ByteBpe`; what form C changes has the offsets of its cluster."""
        text = text.translate(_SURROGATES)
        if normal_form.normalize(text) == text:
            return super().encode_with_offsets(text)
        normal, starts, ends = normal_form.with_offsets(text)
        ids, firsts, lasts = super().encode_with_offsets(normal)
        starts, ends = [*starts, len(text)], [0, *ends]
        pairs = list(zip(firsts, lasts, strict=True))
        return (
            ids,
            [starts[first] for first, _ in pairs],
            # An empty piece is where the next one starts.
            [ends[last] if last > first else starts[last] for first, last in pairs],
        )


# Lone ones have no UTF-8.
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class ModernBertKind(ByteBpeKind):
    """A tokenizer.json of form C, bytes and BERT's special tokens, or its two files."""

    learner = "family.modern_bert.learner:ModernBertLearner"
    tokenizer, special = ModernBertBpe, SPECIAL
    graph = "family.modern_bert.graph:ModernBertGraph"
    normalizer, cut_out = normalizers.NFC(), (*CUT_OUT, *_NEVER)
    hugging_face_classes = hugging_face_classes()

    def reads(self, file):
        if not file.name.endswith(".json") or not file.exists:
            return False
        content = file.content
        return all(f'"{token}"'.encode() in content for token in SPECIAL.tokens)

    def reads_json(self, content):
        tokens = {added["content"] for added in content["added_tokens"]}
        return tokens.issuperset(SPECIAL.tokens) and super().reads_json(content)

    def of_json(self, path, content):
        for added in content["added_tokens"]:
            for flag in _ONLY if added["content"] in CUT_OUT else ():
                part = f"added_tokens {added['content']!r}.{flag}"
                tokenizer_json.check(path, part, added[flag], [False])
        return super().of_json(path, content)

    def vocabulary_of(self, path, tokens, digest):
        if missing := [token for token in SPECIAL.tokens if token not in tokens]:
            raise UserError(
                f"{path}: has no token {' or '.join(missing)}; ModernBERT's vocabulary "
                f"contains {' '.join(SPECIAL.tokens)}"
            )
        return super().vocabulary_of(path, tokens, digest)
