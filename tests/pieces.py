"""Texts and comparisons for the tests of SentencePiece models."""

import itertools
import json
import random
import sys
import unicodedata

import numpy as np

import tests
from training.backend import tf
from text.graphs.lookup import graph_of
from text.tasks import squad
from text.tasks.answer_spans import Document
from text.tokenizers.table import TokenizerOptions

GOLDEN = tests.GOLDEN / "sentencepiece"
CASES = json.loads((GOLDEN / "cases.json").read_text("utf-8"))
# Each alone or next to others is treated in some way of its own.
NASTY = [
    *"aAbßİıΣσςͅ'., \t\n\r\x00\x0b\x1c\x85\u00a0\u2028\u3000\ufeff\u200d\u200b\ufffd1119,,",
    *'\u2581()"-–£€¼½´\U0001f1012０，éÉ\u0301\u0316\u0345\u0591가각\u1100\u1161\u11a8が\u3099',
    "``",
    "'''",
    *"中豈\U00020000\U0001d165\U0001d15e\u0f71\u0f72Å\U0001f600\U0010ffff\ue000ﬁ",
]
CONTEXTS = [
    (
        "The Übergröße  (1895-1943)\n\nis in the file\ttext.",
        ["1895", "Übergröße", "is"],
    ),
    ("Ås naı̈ve, ½ ﬁles; İstanbul in 2019, or y2020,", ["naı̈ve", "ﬁles", "İstanbul"]),
    ("서울의 날씨는 좋네요\u3000😀 it's", ["날씨는", "😀", "it's", "서울"]),
    ("In 2019, the value (2020,) was", ["2019", "2020", "value (2020"]),
]


def load(name, **flags):
    return TokenizerOptions(**flags).load_tokenizer(str(GOLDEN / f"{name}.model"))


def random_texts(number, seed):
    rng = random.Random(seed)
    assigned = [
        chr(point)
        for point in range(sys.maxunicode + 1)
        if unicodedata.category(chr(point)) not in ("Cn", "Co", "Cs")
    ]
    words = " ".join(case["text"] for case in CASES["tiny"]).split()
    for kind in itertools.islice(itertools.cycle(range(4)), number):
        size = rng.randrange(14)
        if kind == 0:
            yield "".join(rng.choices(assigned, k=size))
        elif kind == 1:
            yield "".join(rng.choices(NASTY, k=size))
        elif kind == 2:
            yield "".join(rng.choices("0123456789, xyaΣ\u0301v", k=size))
        else:
            parts = (words, NASTY, assigned, [f"{rng.randrange(3000)},"])
            yield " ".join(rng.choice(rng.choice(parts)) for _ in range(size))


def check_release(name, cases):
    """Ids with the comma after a number apart, and the space that this adds (digits)."""
    for case in cases:
        strips = False if case.get("keep_accents") else None
        tokenizer = load(name, do_lower_case=case.get("lower"), strip_accents=strips)
        text = case["text"]
        assert tokenizer.cleaner.clean(text) == case["preprocessed"]
        assert tokenizer.encode(text) == case["ids"], text
        assert tokenizer.encode_with_offsets(text)[0] == case["ids"]
        packed = np.frombuffer(tokenizer.encode_packed(text), np.uint16)
        assert packed.tolist() == case["ids"]
        assert tokenizer.encode_words(text)[0] == packed.tobytes()
        begins = [tokenizer.family.begins_word(piece) for piece in case["pieces"]]
        assert begins == case.get("start_piece", begins)


def in_graph(tokenizer, folder):
    graph = graph_of(tokenizer, str(folder))
    return tf.function(
        graph.encode_with_offsets,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


def check_graph(tokenizer, encode, texts):
    found = [column.to_list() for column in encode(tf.constant(texts, tf.string))]
    for number, text in enumerate(texts):
        expected = tokenizer.encode_with_offsets(text)
        assert tuple(column[number] for column in found) == expected, text
        assert expected[0] == tokenizer.encode(text)
        _, starts, ends = expected
        assert starts == sorted(starts)
        spans = zip(starts, ends, strict=True)
        assert all(0 <= start <= end <= len(text) for start, end in spans)


def check_graph_of_cases(name, cases, folder):
    tokenizer = load(name)
    encode = in_graph(tokenizer, folder)
    texts = [case["text"] for case in cases] + [text for text, _ in CONTEXTS]
    check_graph(tokenizer, encode, texts + list(random_texts(500, seed=1)))
    for texts in ([], [""], ["", " ", "a", ""]):
        check_graph(tokenizer, encode, texts)
    invalid = encode(tf.constant([b"a\xffb"]))[0].to_list()
    assert invalid == [tokenizer.encode("a\ufffdb")] == [tokenizer.encode("a\ud800b")]


def check_offsets(name, text, parts):
    tokenizer = load(name)
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    tokens = [tokenizer.vocabulary.tokens[id] for id in ids]
    spans = zip(tokens, starts, ends, strict=True)
    assert [
        text[start:end] for token, start, end in spans if token != "\u2581"
    ] == parts


def check_answers(name):
    tokenizer = load(name)
    for context, answers in CONTEXTS:
        document = Document(tokenizer, context)
        assert (np.diff(document.starts) >= 0).all()
        for answer in answers:
            start = context.index(answer)
            first, last = squad.find_answer(document, tokenizer, answer, start)
            found = context[document.starts[first] : document.ends[last]]
            assert answer in found
            # More than the answer only if one piece is: unknown characters share one.
            own = document.ids[first : last + 1].tolist()
            if tokenizer.vocabulary.unk_id not in own:
                assert found == answer
