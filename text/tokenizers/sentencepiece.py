"""Tokenizes text into SentencePiece pieces with offsets.

A text is first cleaned as the release of its family does, most often: white space becomes
single spaces, and letters lose their accents and their case. Then the model, one .model
file, normalizes it by its own rules, puts \u2581 for every space and one before the text,
and chooses the most probable pieces. The \u2581 begins the piece that begins a word or, if
the model has no such piece, is a piece by itself.

FAMILIES lists the models that are known, the core's and those of extensions.
"""

import array
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

import extensions
from errors import UserError, setting
from text.tokenizers import sentencepiece_files, sentencepiece_json, tokenizer_json
from text.tokenizers.cleaner import Filled, loses_voicing
from text.tokenizers.kind import Kind, VocabularyFile, hugging_face_classes
from text.tokenizers.sentencepiece_family import KOBERT, SPACE, Family
from text.tokenizers.tokenizer import HuggingFaceFiles, Tokenizer
from text.tokenizers.vocabulary import Vocabulary

VOCABULARY_FILE = "spiece.model"
_HANGUL = re.compile("[\uac00-\ud7a3]")


def in_order(families: Mapping[str, Family]) -> dict[str, Family]:
    """Families in the order in which a model is compared with them.

    Those with more special tokens come first, because a model of theirs may have the few
    of another, too.
    """

    def number(row):
        return sum(name is not None for name in row[1].special.names)

    return dict(sorted(families.items(), key=number, reverse=True))


# A model is of the first whose special tokens it has.
_CORE = {"kobert": KOBERT}
FAMILIES = in_order(extensions.load_rows("piece_models", _CORE) | _CORE)


# === Pieces ==========================================================================


class Split(NamedTuple):
    """What replaces a piece that is a number and a comma: the pieces of both.

    `size` is how many characters the piece has if each of them is in one of these, else -1.
    """

    ids: tuple[int, ...]
    size: int


class SentencePiece(Tokenizer):
    """Turns text into pieces exactly like the releases of FAMILIES.

    Attributes:
        model, extended_model: bytes, the content of the file, without and with sentinels.
        sizes: int of each piece, its characters without \u2581; that of the unknown is -1.
        splits: id to the `Split` that replaces it; see `Family.adds_spaces`.
        composes_hangul: whether the model does.
    Source: google-research/albert@b772393 tokenization.py, and zihangdai/xlnet@bbaa3a6
        prepro_utils.py, encode_ids.
    """

    finds_answers_by_offset = True

    def __init__(
        self,
        file: VocabularyFile,
        *,
        do_lower_case: bool | None,
        strip_accents: bool,
    ):
        """`do_lower_case` is None if the family decides."""
        files, path = _files(file), file.path
        (self.model,) = files.values()
        try:
            tokens = sentencepiece_files.tokens(self.model)
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error
        self.family = _known_family(path, tokens)
        self.extended_model = self.family.extend(self.model, tokens)
        self._processor = sentencepiece_files.processor(self.extended_model)
        tokens = sentencepiece_files.tokens(self.extended_model)
        self.vocabulary = _vocabulary(path, self.model, tokens, self.family)
        self.vocabulary.files = files
        self.cleaner = self.family.cleaner(do_lower_case, strip_accents)
        self.sizes = [len(token.lstrip(SPACE)) for token in tokens]
        self.sizes[self.vocabulary.unk_id] = -1
        self.splits = dict(self._splits()) if self.family.splits_numbers else {}
        self._encode = self._processor.encode
        normalize = self._processor.normalize
        self._is_blank = Filled(lambda c: not normalize(c).strip(SPACE + " "))
        self._starts = frozenset(i for i, t in enumerate(tokens) if t[:1] == SPACE)
        self.composes_hangul = self._processor.normalize("\u1100\u1161")[-1:] == "가"

    @property
    def settings(self):
        digest, cleaner = {"vocab_sha256": self.vocabulary.digest}, self.cleaner
        if self.family.keeps_text:
            return digest
        names = "do_lower_case", "strip_accents"
        return digest | {name: getattr(cleaner, name) for name in names}

    def hugging_face(self):
        return HuggingFaceFiles(
            sentencepiece_json.config(self),
            sentencepiece_json.to_json(self),
            sentencepiece_json.difference(self),
        )

    def encode(self, text):
        ids = self._encode(self.cleaner.clean(text))
        if self.splits.keys().isdisjoint(ids):
            return ids
        split = self.splits
        return [new for id in ids for new in (split[id].ids if id in split else (id,))]

    def encode_words(self, text):
        ids, starts = [], bytearray()
        for id in self._encode(self.cleaner.clean(text)):
            new = self.splits[id].ids if id in self.splits else (id,)
            ids += new
            # The \u2581 that the rule for numbers adds stands for no space.
            starts.append(id in self._starts)
            starts += bytes(len(new) - 1)
        starts[:1] = b"\1"[: len(starts)]
        return array.array(self.vocabulary.id_type.char, ids).tobytes(), bytes(starts)

    def encode_with_offsets(self, text):
        """Spaces are in no piece, so \u2581 alone is empty and ends where the next piece
        starts; pieces of one character share its offsets.
        """
        clean, begins, stops = self.cleaner.align(text)
        ids, starts, ends = [], [], []
        for piece in self._encode(clean, out_type="immutable_proto").pieces:
            placed = self._place(piece.id, piece.begin, piece.end, clean)
            for new, start, end in placed:
                ids.append(new)
                start_in_text = begins[start] if start < len(begins) else len(text)
                starts.append(start_in_text)
                ends.append(stops[end - 1] if end > start else start_in_text)
        return ids, starts, ends

    def _place(self, id, start, end, clean):
        """Yields the ids that an id becomes, each with the characters it is made of."""
        while start < end and self._is_blank[clean[start]]:
            start += 1
        while end > start and self._is_blank[clean[end - 1]]:
            end -= 1
        size = self.sizes[id]
        if not size:
            end = start
        elif start == end:  # a part of what the model made of one character
            end = min(start + 1, len(clean))
        if id not in self.splits:
            yield id, start, end
            return
        split = self.splits[id]
        one_to_one = end - start == split.size
        for new in split.ids:
            size = self.sizes[new]
            stop = start + size if one_to_one else end if size else start
            yield new, start, stop
            start = stop if one_to_one else start

    def decomposes(self, text):
        """See `Tokenizer`; most models compose Hangul again."""
        if not self.cleaner.strip_accents or text.isascii():
            return False
        if not self.composes_hangul and _HANGUL.search(text):
            return True
        return loses_voicing(text)

    def is_blank(self, character: str) -> bool:
        """Whether the model makes nothing, or a space, of a character."""
        return self._is_blank[character]

    def _splits(self):
        comma = self.vocabulary.ids.get(",", self.vocabulary.unk_id)
        for id, token in enumerate(self.vocabulary.tokens):
            if token[-1:] == "," and token[-2:-1].isdigit():
                number = token[:-1].replace(SPACE, "")
                number = self._processor.encode(number, out_type=str)
                if not self.family.adds_spaces and token[0] != SPACE:
                    number[0] = number[0].removeprefix(SPACE)
                number = self._processor.piece_to_id([x for x in number if x])
                ids = (*number, comma)
                is_exact = sum(self.sizes[new] for new in ids) == self.sizes[id]
                is_exact &= self.vocabulary.unk_id not in ids
                yield id, Split(ids, self.sizes[id] if is_exact else -1)


# === Files ===========================================================================


class SentencePieceKind(Kind):
    """A .model file, or the same as a tokenizer.json."""

    graph = "text.graphs.sentencepiece_graph:SentencePieceGraph"
    learner = "text.tokenizers.learning.sentencepiece_learning:SentencePieceLearner"
    tokenizer = SentencePiece
    vocabulary_file = VOCABULARY_FILE
    hugging_face_classes = hugging_face_classes("KoBERTTokenizer", kind="sentencepiece")
    text_flags = ("do_lower_case", "strip_accents")

    def reads(self, file):
        return file.name.endswith(".model")

    def reads_json(self, content):
        return tokenizer_json.is_unigram(content)

    def json_settings(self, content):
        return tokenizer_json.unigram_settings(content)

    def find_own_file(self, folder):
        if file := super().find_own_file(folder):
            return file
        names = folder.matching("*.model")  # the release's file is 30k-clean.model
        return VocabularyFile(folder, names[0]) if len(names) == 1 else None

    def load(self, file, options):
        if options.split_cjk is False:
            raise UserError(
                f"{file.path}: {setting('split_cjk', False)} does not apply to a "
                "SentencePiece model, whose pieces follow from the text it was learned "
                "from; leave it out"
            )
        return SentencePiece(
            file,
            do_lower_case=options.do_lower_case,
            strip_accents=strips_accents(options),
        )

    def load_vocabulary(self, file):
        tokenizer = SentencePiece(file, do_lower_case=True, strip_accents=True)
        return tokenizer.vocabulary

    def parse(self, content):
        tokens = sentencepiece_files.tokens(content)
        if family := _family(tokens):
            tokens = sentencepiece_files.tokens(family.extend(content, tokens))
        return tokens

    def read_files(self, file):
        return _files(file)

    def resolve(self, options, file):
        settings = self.load(file, options).settings | {"split_cjk": True}
        return {name: settings[name] for name in settings if name != "vocab_sha256"}

    def hugging_face_settings(self, config):
        return sentencepiece_json.settings_of_config(config)


def strips_accents(options) -> bool:
    """Whether `TokenizerOptions` remove accents; the release does from cased text, too."""
    return options.strip_accents is not False


def _files(file):
    """See `Kind.read_files`."""
    content, path = file.json, file.path
    if content is None:
        return {VOCABULARY_FILE: file.content}
    family = _known_family(path, sentencepiece_json.tokens_of(path, content))
    return {VOCABULARY_FILE: sentencepiece_json.model(path, content, family)}


def _family(tokens):
    present = set(tokens)
    families = (f for f in FAMILIES.values() if present.issuperset(f.special.tokens))
    return next(families, None)


def _known_family(path, tokens):
    if family := _family(tokens):
        return family
    families = " or ".join(" ".join(f.special.tokens) for f in FAMILIES.values())
    raise UserError(
        f"{path}: has no pieces {families}, the special tokens of {' or '.join(FAMILIES)}; "
        "use a model that has them, or learn one with build_vocab.py --kind=sentencepiece"
    )


def _vocabulary(path, content, tokens, family):
    special = set(family.special.tokens)
    texts = [token.removeprefix(SPACE) for token in tokens]
    if family.unknown is not None:
        texts[tokens.index(family.special.names[1])] = family.unknown
        special.discard(family.special.names[1])
    return Vocabulary(
        tokens,
        path=path,
        digest=hashlib.sha256(content).hexdigest(),
        special=family.special,
        texts=texts,
        is_continuation=[
            token not in special and not family.begins_word(token) for token in tokens
        ],
        # Of the text, where digits and punctuation are words of their own.
        is_joined=[token not in special and token[:1] != SPACE for token in tokens],
    )
