"""Tokenizes text into GPT-1's pieces, with character offsets.

The smallest pieces are the characters of a word, the last one with </w>; one that is not in
the vocabulary is unknown. The words are those of transformers, which are BERT's: everything
is lowercased, accents are removed and every punctuation mark is a word. OpenAI's code found
them with spaCy and ftfy.

The two files have OpenAI's names, encoder_bpe_40000.json and vocab_40000.bpe, or Hugging
Face's, vocab.json and merges.txt.
"""

import re

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from errors import UserError, setting
from text.tokenizers import recorded_settings, tokenizer_json
from text.tokenizers.bpe import MERGES, VOCABULARY_FILE, BpeKind, Merges
from text.tokenizers.cleaner import Filled
from text.tokenizers.kind import VocabularyFile, hugging_face_classes
from text.tokenizers.tokenizer import HuggingFaceFiles
from text.tokenizers.vocabulary import SpecialTokens, Vocabulary
from text.tokenizers.word_by_word import WordByWord
from text.tokenizers.word_splitter import WordSplitter

_SURROGATES = re.compile("[\ud800-\udfff]")  # lone ones have no UTF-8
END = "</w>"
UNKNOWN = "<unk>"
# `start a classify`, and `start a delimiter b classify`, without segments; padded with 0,
# the id of the unknown. Their ids come after those of the file, if they are not in it.
SPECIAL = SpecialTokens(
    (UNKNOWN, UNKNOWN, "_start_", "_delimiter_", None),
    second_segment=0,
    continuation="",  # it is a word's end that is marked
    end="_classify_",
)
_RELEASED = re.compile(r"encoder_bpe(.*)\.json")  # with vocab$1.bpe
_NO_CHARACTER = "\U0010ffff"  # instead of them; it is in no vocabulary

_normalizer = normalizers.BertNormalizer(lowercase=True)
_form_d = normalizers.NFD()
_cutter = pre_tokenizers.BertPreTokenizer()


def _encodable(text):
    return text if text.isascii() else _SURROGATES.sub(_NO_CHARACTER, text)


class GptWords(WordSplitter):
    """BERT's words as the package tokenizers finds them.

    It differs from `WordSplitter` in characters that are newer than its tables, in those
    for private use, which it removes, and in the Greek final sigma.

    Source: transformers 5.23.0, OpenAIGPTTokenizer.
    """

    final_sigmas = False

    def __init__(self, *switches: bool):
        del switches  # there is one way alone
        super().__init__()
        # Letters around a character show whether it is a word of its own.
        self.table = Filled(lambda p: " ".join(self.words(f"a{chr(p)}a"))[1:-1])

    def words(self, text):
        text = _normalizer.normalize_str(_encodable(text))
        return [word for word, _ in _cutter.pre_tokenize_str(text)]

    def decompose(self, text):
        return _form_d.normalize_str(_encodable(text))

    def changes_unassigned(self, character):
        return _normalizer.normalize_str(character) != character


class GptBpe(WordByWord):
    """Turns text into pieces exactly like Hugging Face's OpenAI GPT tokenizer.

    Attributes:
        merges: the `Merges`.
        sizes: int of each piece, its characters; 1 for the unknown.
    Source: openai/finetune-transformer-lm@a69b5c4 text_utils.py, TextEncoder; transformers
        5.23.0, OpenAIGPTTokenizer.
    """

    finds_answers_by_offset = True

    def __init__(self, vocabulary: Vocabulary, merges: Merges):
        super().__init__(vocabulary, GptWords())
        self.merges = merges
        self.sizes = [len(token.removesuffix(END)) for token in vocabulary.tokens]
        self.sizes[vocabulary.unk_id] = 1
        self._model = models.BPE(
            vocab=vocabulary.ids,
            merges=merges,
            unk_token=UNKNOWN,
            end_of_word_suffix=END,
        )

    @property
    def settings(self):
        return {"vocab_sha256": self.vocabulary.digest}

    def hugging_face(self):
        kind = {"normalized": False, "special": True}
        config = {
            "tokenizer_class": "OpenAIGPTTokenizer",
            "unk_token": UNKNOWN,
            # Most of them are not in the file.
            "added_tokens_decoder": {
                str(self.vocabulary.ids[token]): kind | {"content": token}
                for token in SPECIAL.tokens
            },
        }
        made = tokenizers.Tokenizer(self._model)
        made.normalizer = normalizers.BertNormalizer(lowercase=True)
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.BPEDecoder(suffix=END)
        special = tokenizer_json.special_tokens(self.vocabulary)
        return HuggingFaceFiles(config, tokenizer_json.text_of(made, special))

    def split(self, word):
        pieces = self._model.tokenize(word)
        ids = [piece.id for piece in pieces]
        return ids, [self.sizes[id] for id in ids]

    def decomposes(self, text):
        return False  # whatever it does, it is part of the vocabulary


class GptBpeKind(BpeKind):
    """OpenAI's encoder_bpe_40000.json, or a vocab.json whose tokens have </w>."""

    graph = "family.gpt.graph:GptBpeGraph"
    learner = "family.gpt.learner:GptBpeLearner"
    tokenizer = GptBpe
    special = SPECIAL
    layout = (
        "GPT's vocabulary is two files in one folder, encoder_bpe_40000.json and "
        f"vocab_40000.bpe, or {VOCABULARY_FILE} and {MERGES}"
    )
    hugging_face_classes = hugging_face_classes("OpenAIGPTTokenizer")

    def reads(self, file):
        if _RELEASED.fullmatch(file.name):
            return True
        is_one = file.name.endswith(".json") and file.exists
        return is_one and f'{END}"'.encode() in file.content

    def reads_json(self, content):
        model = content["model"]
        return model["type"] == "BPE" and model["end_of_word_suffix"] == END

    def of_json(self, path, content):
        tokenizer_json.check_bert_words(path, content)
        (normalizer,) = tokenizer_json.steps(content["normalizer"])
        for name in ("lowercase", "strip_accents", "handle_chinese_chars"):
            allowed = [True, None] if name == "strip_accents" else [True]
            part = f"normalizer.{name}"
            tokenizer_json.check(path, part, normalizer[name], allowed)
        tokenizer_json.check_model(path, content, "unk_token", UNKNOWN)
        tokenizer_json.check_model(path, content, "fuse_unk", False)
        return tokenizer_json.bpe_files(path, content, SPECIAL.tokens)

    def find_own_file(self, folder):
        file = VocabularyFile(folder, VOCABULARY_FILE)
        if file.exists and self.reads(file):
            return file
        names = folder.matching("encoder_bpe*.json")
        names = [name for name in names if not name.endswith(recorded_settings.SUFFIX)]
        return VocabularyFile(folder, names[0]) if len(names) == 1 else None

    def merges_name(self, vocabulary_name):
        released = _RELEASED.fullmatch(vocabulary_name)
        return f"vocab{released[1]}.bpe" if released else MERGES

    def resolve(self, options, file):
        allowed = {
            "do_lower_case": (None, True),
            "strip_accents": (None,),
            "split_cjk": (None, True),
        }
        for name, values in allowed.items():
            if getattr(options, name) not in values:
                raise UserError(
                    f"{setting(name)} does not apply to GPT's vocabulary, whose text is "
                    "always lowercased; leave it out"
                )
        return {"do_lower_case": True, "split_cjk": True}

    def hugging_face_settings(self, config):
        return {}  # no flag changes its ids

    def vocabulary_of(self, path, tokens, digest):
        present = set(tokens)
        if UNKNOWN not in present:
            raise UserError(
                f"{path}: has no token {UNKNOWN}, which GPT's vocabulary has"
            )
        if not any(len(t) == len(END) + 1 and t.endswith(END) for t in tokens):
            raise UserError(
                f"{path}: no character has a token with {END}; it is not a vocabulary of "
                "GPT"
            )
        tokens = [*tokens, *(token for token in SPECIAL.tokens if token not in present)]
        special = set(SPECIAL.tokens)
        return Vocabulary(
            tokens,
            path=path,
            digest=digest,
            special=SPECIAL,
            # A line break is no more than the space between words.
            texts=[token.removesuffix(END).strip() for token in tokens],
            is_continuation=[False] * len(tokens),  # it is not seen from a piece alone
            joins_next=[t not in special and not t.endswith(END) for t in tokens],
        )
