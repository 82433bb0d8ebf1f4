"""Files of tagged words: columns, tokens of one character, CoNLL-U."""

import pytest

from errors import UserError
from text.tasks.tag_files import Columns

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
\t
German JJ B-NP I-MISC

-DOCSTART- -X- -X- O

Peter NNP B-NP I-PER
Blackburn NNP I-NP I-PER
"""


def parse(text, **columns):
    return Columns(**columns).sentences(text.split("\n"), "a.txt")


def test_sentences_and_documents():
    assert parse(CONLL) == [
        (("EU", "rejects"), ("I-ORG", "O"), range(3, 5), 1, 0),
        (("German",), ("I-MISC",), range(6, 7), 1, 2),
        (("Peter", "Blackburn"), ("I-PER", "I-PER"), range(10, 12), 2, 0),
    ]


def test_columns_are_counted_from_both_ends():
    (sentence,) = parse("O\tx\ten:Rome\nB-LOC\ty\ten:", word=-1, tag=0, prefix="en:")
    assert sentence.words == ("Rome", "")
    assert sentence.tags == ("O", "B-LOC")
    (sentence,) = parse("Rome\nLondon\n", tag=None)
    assert sentence == (("Rome", "London"), None, range(1, 3), 0, 0)


def test_only_spaces_and_tabs_separate():
    (sentence,) = parse("10\u00a0000  O\r\n\x0b \t O\r\n\ufeff O\r\n\u2028\tO")
    assert sentence.words == ("10\u00a0000", "\x0b", "\ufeff", "\u2028")
    # What is left over where files were joined is no word.
    assert len(parse("a O\n\ufeff\nb O")) == 2


def test_predictions_stand_beside_their_words_line_for_line():
    lines = CONLL.replace("\n", "\r\n").replace("Peter ", "Peter\t").split("\n")
    added = {3: "B-ORG", 4: "O", 6: "B-MISC", 10: "B-PER", 11: "I-PER"}
    assert list(Columns().with_tags(lines, added)) == [
        "-DOCSTART- -X- -X- O O\r",
        "\r",
        "EU NNP B-NP I-ORG B-ORG\r",
        "rejects VBZ B-VP O O\r",
        "\t\r",
        "German JJ B-NP I-MISC B-MISC\r",
        "\r",
        "-DOCSTART- -X- -X- O O\r",
        "\r",
        "Peter\tNNP B-NP I-PER\tB-PER\r",
        "Blackburn NNP I-NP I-PER I-PER\r",
        "",
    ]


def test_documents_begin_wherever_the_word_stands():
    text = "0 -DOCSTART- O\n\n0 Rome B\n\n1 -DOCSTART- O\n\n0 Ohio B"
    assert [(s.words, s.document) for s in parse(text, word=1)] == [
        (("Rome",), 1),
        (("Ohio",), 2),
    ]
    prefixed = "en:-DOCSTART- O\n\nen:Rome B"
    assert [s.document for s in parse(prefixed, prefix="en:")] == [1]
    lines = Columns(word=1).with_tags(text.split("\n"), {3: "B", 7: "O"})
    assert list(lines)[::2] == [
        "0 -DOCSTART- O O",
        "0 Rome B B",
        "1 -DOCSTART- O O",
        "0 Ohio B O",
    ]


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("", {}, "a.txt: contains no words"),
        ("-DOCSTART- O\n\n\t\n", {}, "a.txt: contains no words"),
        ("a O\n\nb x O", {}, "a.txt:3: 3 columns, but the first line has 2"),
        ("a", {}, r"a.txt:1: the column of the tag is that of the word \('a'\)"),
        ("a O", {"word": 1}, r"a.txt:1: the column of the tag is that of the word"),
        ("a O", {"word": 2}, "a.txt:1: 2 columns, but --word_column=2"),
        ("a O", {"tag": -3}, "a.txt:1: 2 columns, but --tag_column=-3"),
    ],
)
def test_a_bad_line_is_named(text, columns, message):
    with pytest.raises(UserError, match=message):
        parse(text, **columns)
