"""A tokenizer of one's own: each character is a token. It is this file and one ROW."""

import collections

import numpy as np

from training.backend import tf
from text.graphs import graph_tokenizer
from text.tokenizers.kind import Kind
from text.tokenizers.learning.learner import Learner
from text.tokenizers.tokenizer import Tokenizer
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary


class Letters(Tokenizer):
    files = settings = None  # set below

    def __init__(self, vocabulary):
        self.vocabulary, self.settings = vocabulary, {"vocab_sha256": vocabulary.digest}
        self.files = {LettersKind.vocabulary_file: _content(vocabulary.tokens)}

    def encode_words(self, text):
        starts = b"".join(b"\1" + bytes(len(word) - 1) for word in text.split())
        return self.encode_packed(text), starts

    def encode_with_offsets(self, text):
        places = [place for place, letter in enumerate(text) if not letter.isspace()]
        ids, unknown = self.vocabulary.ids, self.vocabulary.unk_id
        return (
            [ids.get(text[i], unknown) for i in places],
            places,
            [i + 1 for i in places],
        )


class LettersGraph(graph_tokenizer.GraphTokenizer):
    def __init__(self, tokenizer, folder):
        super().__init__(tokenizer.vocabulary)
        self.files = graph_tokenizer.assets(folder, tokenizer.files)
        ids = np.full(graph_tokenizer.NUM_POINTS, self.unk_id, np.int32)
        ids[[point for point in range(len(ids)) if chr(point).isspace()]] = -1
        for token, id in tokenizer.vocabulary.ids.items():
            if len(token) == 1:
                ids[ord(token)] = id
        self._ids = graph_tokenizer.of_code_points(ids)

    def pieces_with_offsets(self, texts):
        points = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        ids = points.with_flat_values(self._ids(points.flat_values))
        places = tf.ragged.range(tf.cast(points.row_lengths(), tf.int32))
        places = places.with_row_splits_dtype(tf.int64)
        ids, starts = (tf.ragged.boolean_mask(x, ids >= 0) for x in (ids, places))
        return ids, starts, starts + 1


class LettersKind(Kind):
    graph, learner = f"{__name__}:LettersGraph", f"{__name__}:LettersLearner"
    tokenizer, vocabulary_file = Letters, "letters.txt"

    def reads(self, file):
        return file.name.endswith(self.vocabulary_file)

    def load(self, file, options):
        return Letters(self.load_vocabulary(file))

    def load_vocabulary(self, file):
        return Vocabulary.load(file.path, file.content)

    def parse(self, content):
        return content.decode().splitlines()


class LettersLearner(Learner):
    activity, file_names, unused_flags = "counting letters", "be letters.txt", ()

    def defaults(self):
        return {"vocab_size": self.options.vocab_size or 100}

    def fixed_tokens(self):
        return len(SPECIAL_TOKENS), "special tokens"

    def learn(self, lines, source):
        counts = collections.Counter(c for line in lines for c in "".join(line.split()))
        return [_content([*SPECIAL_TOKENS, *counts])]

    def report(self, tokenizer):
        yield f"{len(tokenizer.vocabulary)} tokens"


def _content(tokens):
    return "".join(f"{token}\n" for token in tokens).encode()


ROW = LettersKind()
