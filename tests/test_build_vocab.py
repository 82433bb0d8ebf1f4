"""A learned vocabulary: its layout, its pieces, the figures printed, and the refusals."""

import json
import string
import sys
import unicodedata

import pytest

from build_vocab import Options
from errors import UserError
from tests.learning import TEXT, check_same_bytes, learn
from tests.text.corpus.dumps import dump, page
from text.corpus import text_format
from text.tokenizers.learning import morphemes
from text.tokenizers.learning.word_learning import WordCounts
from text.tokenizers.table import TokenizerOptions
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_splitter import WordSplitter
from text.tokenizers.wordpiece import WordPiece


@pytest.fixture
def build(tmp_path):
    def build_from(text, **chosen):
        learn(tmp_path, text, **chosen)
        return (tmp_path / "made" / "vocab.txt").read_text("utf-8").splitlines()

    return build_from


def test_specials_characters_and_pieces_stand_in_order(build):
    tokens = build(TEXT)
    assert tokens[:7] == [
        *["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ]
    marks, alphanumeric = string.punctuation, string.digits + string.ascii_lowercase
    assert tokens[7:77] == sorted(marks + alphanumeric) + ["们", "我"]
    # Marks of punctuation and Chinese characters never continue a word.
    assert tokens[77:113] == [f"##{character}" for character in alphanumeric]
    assert {"low", "lower", "new", "##st", "newest"} <= set(tokens[113:])
    assert len(tokens) == len(set(tokens)) <= 130


def test_unused_tokens_lie_around_the_others_as_in_the_release(build):
    tokens = build(TEXT, num_unused=994, vocab_size=1200)
    assert tokens[0] == "[PAD]" and tokens[99] == "[unused98]"
    assert tokens[100:105] == ["[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused99]"]
    assert tokens[998] == "[unused993]" and tokens[999] == "!"


def test_the_vocabulary_knows_its_text(build, tmp_path):
    build(TEXT)
    vocabulary = Vocabulary.load(str(tmp_path / "made" / "vocab.txt"))
    assert "[UNK]" not in WordPiece(vocabulary).tokenize(TEXT)


def test_case_and_accents_follow_the_switches(build):
    assert "É" in build(TEXT, do_lower_case=False, vocab_size=200)
    assert "ñ" in build(TEXT, strip_accents=False)
    assert "##们" in build(TEXT, split_cjk=False)


def test_rare_characters_are_left_out_and_counted(build, capsys):
    tokens = build(TEXT + "low žluťøß\n" * 4, min_character_count=5)
    assert "low" in tokens and "z" in tokens
    assert not {"ø", "##ø", "ß", "##ß"} & set(tokens)
    assert "left out: 2 characters seen fewer than" in capsys.readouterr().out


def test_figures_on_held_out_lines(build, capsys):
    text = ("ab cd\n" * 9 + "ab øø\n") * 10  # every tenth line is held out
    build(text, heldout_share=0.1)
    output = capsys.readouterr().out
    assert "on 20 held-out words: 50.000% are [UNK], 1.000 pieces per word" in output
    build(text, heldout_share=0)
    assert "nothing was held out" in capsys.readouterr().out


def test_a_size_out_of_reach_is_said(build, capsys):
    assert len(build("ab ab ab ab ab\n", num_unused=0)) == 5 + 68 + 36 + 1
    assert "--vocab_size=130 was not reached" in capsys.readouterr().out


def test_a_dump_of_a_wiki_is_read_and_what_is_left_out_is_said(
    build, tmp_path, capsys, monkeypatch
):
    pytest.importorskip("mwparserfromhell")
    pages = [page(line) for line in TEXT.splitlines() if line.strip()]
    (tmp_path / "dump.xml").write_bytes(dump(*pages, page("", redirect=True)))
    plain = build(TEXT)
    given = {"input_file": [str(tmp_path / "dump.xml")], "input_format": "wikipedia"}
    monkeypatch.setattr(text_format, "PIECE_BYTES", 500)
    for num_workers in (1, 3):
        assert build(None, **given, num_workers=num_workers) == plain
    wiki = f"Wiki: {len(pages) + 1:,} pages; left out: 1 redirects"
    assert wiki in capsys.readouterr().out


def test_korean_text_keeps_its_syllables_with_one_line(build, tmp_path, capsys):
    tokens = build("한국어 Café\n" * 9)
    assert {"한국어", "café"} <= set(tokens)
    (line,) = (x for x in capsys.readouterr().err.splitlines() if "--strip" in x)
    assert "100% of the lines" in line and "--strip_accents=true" in line
    notes = tmp_path / "made" / "vocab.txt.text.json"
    assert json.loads(notes.read_text())["strip_accents"] is False
    korean = "한국어 문장이다\n" * 9
    in_letters = unicodedata.normalize("NFD", korean)  # as macOS writes it
    assert build(in_letters) == build(korean)


def test_the_release_s_decomposition_is_still_there_with_a_warning(build, capsys):
    korean = "한국어 한국어\n" * 9
    tokens = build(korean, strip_accents=True)
    assert "\u1112" in tokens and not any("가" <= token <= "힣" for token in tokens)
    assert capsys.readouterr().err.count("--strip_accents=false") == 1
    build(korean, strip_accents=False)
    assert "--strip_accents" not in capsys.readouterr().err
    # A few lines among others do not decide about their accents.
    assert "cafe" in build("한국어\n" + "Café\n" * 30)
    assert capsys.readouterr().err.count("--strip_accents=false") == 1


@pytest.mark.parametrize(
    ("text", "chosen", "message"),
    [
        (TEXT, {"vocab_size": 30}, "need 113; raise it"),
        ("", {}, "no words in 1 file.s."),
        (b"ok\ncaf\xe9\n", {}, "text.txt:2: not UTF-8"),
        (
            f"ok\n{'x' * 1_000_001}",
            {"max_line_mb": 1},
            "text.txt:2: the line is longer",
        ),
        (TEXT, {"input_file": ["nothing*"]}, "no file matches 'nothing"),
        (TEXT, {"heldout_share": 2.0}, "--heldout_share=2.0: must be 0, or from"),
        (TEXT, {"num_unused": -1}, "--num_unused=-1: must be at least 0"),
        (TEXT, {"vocab_size": 7}, "--vocab_size=7: must be above 7"),
        (TEXT, {"vocab_size": 10**20}, "at most 10,000,000"),
        (TEXT, {"output_file": "."}, "--output_file=.: must name a file"),
    ],
)
def test_refusals(build, tmp_path, text, chosen, message):
    with pytest.raises(UserError, match=message):
        build(text, **chosen)
    assert list(tmp_path.glob("made/*")) == []


def test_the_text_is_not_replaced_by_its_vocabulary(build, tmp_path):
    with pytest.raises(UserError, match="text.txt: is also an input"):
        build(TEXT, output_file=str(tmp_path / "." / "text.txt"))
    assert (tmp_path / "text.txt").read_text("utf-8") == TEXT


def test_how_it_was_learned_is_noted_next_to_it(build, tmp_path):
    path = tmp_path / "made" / "vocab.txt"
    build(TEXT, strip_accents=False, do_lower_case=False, vocab_size=200)
    tokenizer = TokenizerOptions().load_tokenizer(str(path))
    assert tokenizer.tokenize("Él")[0][:1] == "É"
    # What the user says goes.
    flags = TokenizerOptions(do_lower_case=True, strip_accents=True)
    assert flags.load_tokenizer(str(path)).splitter.words("Él") == ["el"]
    # It is replaced with its vocabulary, and does not change what is learned.
    build(TEXT)
    again = TokenizerOptions().load_tokenizer(str(path))
    assert again.splitter.words("Él") == ["el"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "<html>404</html>", "{}", '{"vocab_sha256": "00", "do_lower_case": 1}'],
)
def test_damaged_notes_are_refused(build, tmp_path, content):
    """Without a word, Korean would be read with other flags, and become [UNK]."""
    build(TEXT)
    path = tmp_path / "made" / "vocab.txt"
    (tmp_path / "made" / "vocab.txt.text.json").write_text(content)
    message = "vocab.txt.text.json: damaged, .* restore it, or delete it and pass"
    with pytest.raises(UserError, match=message):
        TokenizerOptions().load_tokenizer(str(path))
    # With all of them, nothing is looked for.
    every = {"do_lower_case": True, "strip_accents": True, "split_cjk": True}
    TokenizerOptions(**every).load_tokenizer(str(path))


def test_notes_of_another_vocabulary_are_refused_until_they_are_deleted(
    build, tmp_path
):
    build(TEXT, strip_accents=False)
    path, notes = (tmp_path / "made" / f"vocab.txt{end}" for end in ("", ".text.json"))
    with path.open("a") as file:
        file.write("another\n")
    message = (
        "vocab.txt.text.json: notes how another .* delete these notes and pass the "
    )
    with pytest.raises(UserError, match=f"{message}.*--do_lower_case, --strip_accents"):
        TokenizerOptions().load_tokenizer(str(path))
    notes.unlink()
    again = TokenizerOptions().load_tokenizer(str(path))
    assert again.splitter.words("Él") == ["el"]


def test_a_users_file_in_the_place_of_that_note_stays(build, tmp_path):
    note = tmp_path / "made" / "vocab.txt.text.json"
    note.parent.mkdir()
    note.write_text('{"mine": 1}')
    with pytest.raises(UserError, match="vocab.txt.text.json: exists and does not"):
        build(TEXT)
    assert [path.name for path in note.parent.iterdir()] == [note.name]


@pytest.mark.parametrize(
    ("size", "number"), [(30522, 994), (119547, 994), (8000, 260), (150, 4)]
)
def test_small_vocabularies_reserve_fewer_tokens(size, number):
    given = {"input_file": ["a"], "output_file": "vocab.txt", "vocab_size": size}
    assert Options(**given).num_unused == number


def test_reserved_tokens_are_counted(build, capsys):
    build(TEXT, num_unused=None, vocab_size=150)
    assert "tokens (4 of them [unusedN], --num_unused), learned" in (
        capsys.readouterr().out
    )


def test_rare_words_make_room_but_their_characters_count():
    counts = WordCounts(WordSplitter(), most_words=3)
    counts.add("a a a b b c c d e")
    counts.fold()
    assert counts.words == {"a": 3, "b": 2, "c": 2}
    assert counts.forgotten == 2
    assert counts.characters == {"a": 3, "b": 2, "c": 2, "d": 1, "e": 1}


def test_every_process_writes_the_same_bytes(tmp_path):
    check_same_bytes(tmp_path, "vocab.txt", size=190)


@pytest.mark.exhaustive
def test_pieces_stay_within_morphemes(build, capsys):
    pytest.importorskip("kiwipiepy")
    text = "영화를 봤다. 영화가 좋다. 영화는 좋았다.\n" * 20
    assert {"영화를", "영화가"} <= set(build(text, vocab_size=300))
    tokens = set(build(text, vocab_size=300, piece_boundaries="morphemes"))
    assert {"영화", "##를", "##가", "##는"} <= tokens
    assert not {"영화를", "영화가"} & tokens
    assert "\ufdd0" not in "".join(tokens) and "left out" not in capsys.readouterr().out


def test_a_syllable_of_two_morphemes_is_not_divided():
    pytest.importorskip("kiwipiepy")
    (line,) = morphemes.mark_morphemes(["그가 공부했다, 봐도"])
    assert line == "그\ufdd0가 공부\ufdd0했\ufdd0다\ufdd0, 봐도"


def test_without_kiwipiepy_the_requirements_are_named(build, monkeypatch):
    monkeypatch.setitem(sys.modules, "kiwipiepy", None)
    with pytest.raises(UserError, match="kiwipiepy.*requirements/korean.txt"):
        build(TEXT, piece_boundaries="morphemes")


def test_only_wordpiece_knows_morphemes(build, tmp_path):
    given = {"input_file": ["a.txt"], "output_file": str(tmp_path / "spiece.model")}
    with pytest.raises(UserError, match="--piece_boundaries does not apply"):
        Options(**given, piece_boundaries="morphemes")
