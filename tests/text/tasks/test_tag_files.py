"""Files of tagged words: columns, tokens of one character, CoNLL-U."""

import pytest

from errors import UserError
from text.tasks.tag_files import CONLLU, Columns, Conllu

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
        ("a O\n\nb x O", {}, "a.txt:3: 3 columns, but the first line has 2; fix the"),
        (
            "a\tO\n\tO",
            {},
            "a.txt:2: 1 column, .* has 2; a column between tabs is empty",
        ),
        ("a\tO\nb c\tO", {}, "a.txt:2: 3 columns, .* too; remove that in 'b c'"),
        ("a b\tO\nb\tO", {}, "a.txt:2: 2 columns, .* has 3; .* remove that in 'a b'"),
        ("a\tO\n  O", {}, "a.txt:2: 1 column, .* a token that is a space needs a tab"),
        ("## id\ta b\na\tO", {}, "a.txt:2: .* remove the comments, lines that begin"),
        ("a,O", {}, r"\('a,O'\) \(the only one\); separate columns by spaces or tabs"),
        ("a", {}, r"a.txt:1: the column of the tag is that of the word \('a'\)"),
        ("a O", {"word": 1}, r"a.txt:1: the column of the tag is that of the word"),
        ("a O", {"word": 2}, "a.txt:1: 2 columns, but --word_column=2"),
        ("a O", {"tag": -3}, "a.txt:1: 2 columns, but --tag_column=-3"),
    ],
)
def test_a_bad_line_is_named(text, columns, message):
    with pytest.raises(UserError, match=message):
        parse(text, **columns)


def test_the_file_of_klue_may_lack_its_head():
    (sentence,) = parse("## klue-ner-v1_dev_0\t<a:PS> b c\na\tB-PS\n \tO\nb\tO\n")
    assert sentence.words == ("a", " ", "b")


# --- Characters ----------------------------------------------------------------------

# As KLUE-NER's files begin.
KLUE = """## 토큰, 레이블 구분자 : \\t
## 주석 : ##
## 1\t<김:PS> #1
김\tB-PS
 \tO
#\tO
1\tB-QT

## 2\t<나:PS>
나\tB-PS
"""


def test_a_space_is_a_character_and_comments_are_none():
    assert parse(KLUE) == [
        (("김", " ", "#", "1"), ("B-PS", "O", "O", "B-QT"), range(4, 8), 0, 0),
        (("나",), ("B-PS",), range(10, 11), 0, 4),
    ]
    lines = KLUE.split("\n")
    marks = dict.fromkeys((4, 5, 6, 7, 10), "X")
    assert list(Columns().with_tags(lines, marks)) == [
        *lines[:3],
        *("김\tB-PS\tX", " \tO\tX", "#\tO\tX", "1\tB-QT\tX", ""),
        *(lines[8], "나\tB-PS\tX", ""),
    ]


def test_other_files_have_spaces_but_no_comments():
    (sentence,) = parse("가 O\n \tO\n## O\n")
    assert sentence.words == ("가", " ", "##")
    assert len(parse("a O\n \t\nb O")) == 2  # whitespace alone ends a sentence


# --- CoNLL-U -------------------------------------------------------------------------


def line(id_, form, upos="X", xpos="_", rest="_\t0\troot\t_\t_"):
    return f"{id_}\t{form}\t_\t{upos}\t{xpos}\t{rest}"


TREES = "\n".join(
    [
        "# newdoc id = one",
        "# text = I don't.",
        line(1, "I", "PRON", "PRP"),
        line("2-3", "don't", "_"),
        line(2, "do", "AUX", "VBP"),
        line(3, "n't", "PART", "RB"),
        line("3.1", "go", "VERB", "VB"),
        line(4, ",", "PUNCT", ","),
        "",
        line(1, "10 000", "NUM", "CD"),
        "",
        "# newdoc",
        line(1, "#", "SYM", "_"),
        "",
    ]
)


def trees(text=TREES, tag="upos", **more):
    form = Conllu(CONLLU.index(tag), **more)
    return form.sentences(text.split("\n"), "a.conllu")


def test_words_of_trees_are_neither_ranges_nor_empty_nodes():
    assert trees() == [
        (
            ("I", "do", "n't", ","),
            ("PRON", "AUX", "PART", "PUNCT"),
            (3, 5, 6, 8),
            1,
            0,
        ),
        (("10 000",), ("NUM",), range(10, 11), 1, 4),
        (("#",), ("SYM",), range(13, 14), 2, 0),
    ]
    assert trees(tag="xpos")[0].tags == ("PRP", "VBP", "RB", ",")
    assert trees(tag="xpos", has_tags=False)[0].tags is None


def test_predicted_tags_of_trees_replace_theirs():
    lines = [f"{each}\r" for each in TREES.split("\n")]
    after = list(Conllu(CONLLU.index("xpos")).with_tags(lines, {3: "new", 13: "other"}))
    changed = [i for i, (a, b) in enumerate(zip(lines, after, strict=True)) if a != b]
    assert changed == [2, 12]
    assert after[2] == line(1, "I", "PRON", "new") + "\r"
    (last,) = Conllu(9).with_tags([line(1, "a") + "\r"], {1: "end"})
    assert last == line(1, "a").removesuffix("_") + "end\r"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# text\n\n", "a.conllu: contains no words"),
        (
            f"#\n{line(1, 'a').rpartition(chr(9))[0]}",
            "a.conllu:2: 9 columns; a line of CoNLL-U has 10, separated by tabs; fix",
        ),
        (line(1, "a").replace("\t", " "), "a.conllu:1: 1 column; a line of CoNLL-U"),
        (line(1, ""), "a.conllu:1: the column form is empty; CoNLL-U has _ where"),
        (
            line(1, "a") + "\n" + line(3, "b"),
            "a.conllu:2: the ID is '3', but the words",
        ),
        (
            line(1, "a") + "\n" + line(1, "b"),
            "2: the ID is '1', .* an empty line between",
        ),
        (line(1, "a", "_"), "a.conllu: no word has a tag in the column upos; check"),
    ],
)
def test_a_bad_line_of_trees_is_named(text, message):
    with pytest.raises(UserError, match=message):
        trees(text)


def test_trees_read_as_columns_are_pointed_at():
    with pytest.raises(UserError, match="or pass --tag_column=upos or xpos if this is"):
        parse(TREES)
