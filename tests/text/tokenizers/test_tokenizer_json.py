"""A tokenizer.json as transformers 5 writes it is a vocabulary, and says how to split."""

import base64
import json

import pytest
import tokenizers

import tests
from errors import UserError
from tests.tokenizer_json import (
    TEXT,
    added,
    bert,
    changed,
    check_written,
    rows,
    with_tokens,
    write,
)
from text.tokenizers import sentencepiece_files
from text.tokenizers.sentencepiece_files import Piece
from text.tokenizers.table import TokenizerOptions, find_vocabulary, load_vocabulary

WORDPIECE = tests.GOLDEN / "tokenization"
PIECES = tests.GOLDEN / "sentencepiece"

SPACE = "\u2581"
WORDS = [{"type": "WhitespaceSplit"}] + [
    {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": "always"}
]


def unigram(name: str, row: tuple[str, str], steps: list[dict]) -> dict:
    content = (PIECES / f"{name}.model").read_bytes()
    model = sentencepiece_files.processor(content)
    pieces = [[model.id_to_piece(i), model.get_score(i)] for i in range(len(model))]
    return {
        "model": {"type": "Unigram", "unk_id": model.unk_id(), "vocab": pieces},
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": WORDS},
        "post_processor": rows(*row),
    }


def replace(old: str, new: str) -> dict:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


QUOTES = [replace("``", '"'), replace("''", '"')]
ACCENTS = [{"type": "NFKD"}, {"type": "StripAccents"}]
LOWER = [{"type": "Lowercase"}]


def albert(steps=(*QUOTES, *ACCENTS, *LOWER)) -> dict:
    layout = "[CLS] A [SEP]", "[CLS] A [SEP] B [SEP]"
    return unigram("tiny", layout, list(steps))


def xlnet(steps=(*QUOTES, *ACCENTS)) -> dict:
    layout = "A <sep> <cls>", "A <sep> B <sep> <cls>"
    return unigram("xlnet", layout, list(steps))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ({}, {}),
        ({"lowercase": False}, {"do_lower_case": False}),
        ({"strip_accents": False}, {"strip_accents": False}),
        ({"handle_chinese_chars": False}, {"split_cjk": False}),
        (
            {"lowercase": False, "strip_accents": True},
            {"do_lower_case": False, "strip_accents": True},
        ),
    ],
)
def test_wordpiece_splits_as_the_normalizer_says(tmp_path, flags, expected):
    folder = write(tmp_path, **bert(**flags))
    path = str(folder / "tokenizer.json")
    assert find_vocabulary(str(folder)) == path
    ours = TokenizerOptions().load_tokenizer(str(folder))
    vocabulary = str(WORDPIECE / "uncased_vocab.txt")
    same = TokenizerOptions(**expected).load_tokenizer(vocabulary)
    assert ours.encode(TEXT) == same.encode(TEXT)
    assert ours.settings == same.settings  # also that the vocabulary is the same
    assert ours.files == same.files
    assert load_vocabulary(path).tokens == same.vocabulary.tokens
    assert TokenizerOptions().resolved(path).items() <= ours.settings.items()
    repeated = TokenizerOptions(**expected).load_tokenizer(path)
    assert repeated.settings == same.settings


@pytest.mark.parametrize("token", ["sine\nfine", "\nsine", " sine", "sine\r"])
def test_a_token_that_no_line_holds_is_refused(tmp_path, token):
    parts = bert()
    ids = {token if id == 600 else t: id for t, id in parts["model"]["vocab"].items()}
    parts["model"]["vocab"] = ids
    folder = write(tmp_path, **parts)
    with pytest.raises(UserError, match="token 600 of model.vocab is .*sine"):
        load_vocabulary(str(folder))


def test_a_vocab_txt_that_it_contradicts_is_refused(tmp_path):
    folder = write(tmp_path, **bert())
    path = folder / "vocab.txt"
    content = (WORDPIECE / "uncased_vocab.txt").read_text(encoding="utf-8")
    path.write_text(content, encoding="utf-8")
    same = TokenizerOptions().load_tokenizer(str(folder))
    assert same.vocabulary.path == str(path)
    lines = content.splitlines()
    lines[600], lines[601] = lines[601], lines[600]
    for other in (lines, [*content.splitlines(), "more"]):
        path.write_text("".join(f"{line}\n" for line in other), encoding="utf-8")
        with pytest.raises(UserError, match="vocab.txt: token .* but .*tokenizer.json"):
            TokenizerOptions().load_tokenizer(str(folder))
    path.rename(folder / "other.txt")  # this name is not the model's
    load_vocabulary(str(folder / "other.txt"))
    path.write_text(content, encoding="utf-8")
    write(
        tmp_path, **bert() | {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}
    )
    with pytest.raises(UserError, match="tokenizer.json: model.type is BPE, but"):
        load_vocabulary(str(path))


def test_other_files_that_say_other_flags_are_refused(tmp_path):
    folder = write(tmp_path, **bert(lowercase=False))
    (folder / "tokenizer_config.json").write_text('{"do_lower_case": true}')
    (folder / "vocab.txt").write_bytes((WORDPIECE / "uncased_vocab.txt").read_bytes())
    said = "--do_lower_case=false, but Hugging Face's files in .* say true; move away"
    with pytest.raises(UserError, match=f"tokenizer.json: says {said}"):
        TokenizerOptions().load_tokenizer(str(folder))
    (folder / "tokenizer_config.json").unlink()
    ours = TokenizerOptions().load_tokenizer(str(folder))
    assert not ours.splitter.do_lower_case
    uncased = dict(ours.settings) | {"do_lower_case": True}
    (folder / "vocab.txt.text.json").write_text(json.dumps(uncased))
    said = "--do_lower_case=true, but Hugging Face's files in .* say false"
    with pytest.raises(UserError, match=f"vocab.txt.text.json: says {said}"):
        TokenizerOptions().load_tokenizer(str(folder))


def test_a_flag_that_contradicts_it_is_refused(tmp_path):
    folder = write(tmp_path, **bert(lowercase=False))
    for flag in ({"do_lower_case": True}, {"strip_accents": True}):
        with pytest.raises(UserError, match=f"--{next(iter(flag))}=false"):
            TokenizerOptions(**flag).load_tokenizer(str(folder))
    folder = write(tmp_path, **bert())
    with pytest.raises(UserError, match="--split_cjk=true"):
        TokenizerOptions(split_cjk=False).load_tokenizer(str(folder))


@pytest.mark.parametrize(
    ("parts", "name", "flags"),
    [
        (albert(), "tiny", {}),
        (albert(QUOTES + LOWER), "tiny", {"strip_accents": False}),
        (albert(QUOTES + ACCENTS), "tiny", {"do_lower_case": False}),
        (xlnet(), "xlnet", {}),
        (xlnet((*QUOTES, *ACCENTS, *LOWER)), "xlnet", {"do_lower_case": True}),
    ],
)
def test_unigram_is_sentencepiece(tmp_path, parts, name, flags):
    folder = write(tmp_path, **parts)
    ours = TokenizerOptions().load_tokenizer(str(folder))
    path = str(PIECES / f"{name}.model")
    same = TokenizerOptions(**flags).load_tokenizer(path)
    assert ours.vocabulary.tokens == same.vocabulary.tokens
    assert ours.splits == same.splits
    text = (
        "Élan ÉLAN  ``x'' U.S. co-op 3.5 1,000 (x) don't"  # needs no map of characters
    )
    assert ours.encode(text) == same.encode(text)
    noted = {k: v for k, v in ours.settings.items() if k != "vocab_sha256"}
    assert noted.items() <= same.settings.items()


def test_the_map_of_characters_goes_along(tmp_path):
    content = (PIECES / "tiny.model").read_bytes()
    parts = albert([*QUOTES, *ACCENTS, *LOWER, {"type": "Precompiled"}])
    parts["normalizer"]["normalizers"][-1]["precompiled_charsmap"] = charsmap(content)
    ours = TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))
    same = TokenizerOptions().load_tokenizer(str(PIECES / "tiny.model"))
    for text in (TEXT, "½ ﬁ ™ \u3000x\u200b", "\u1112\u1161\u11ab 한국어"):
        assert ours.encode(text) == same.encode(text)


def test_t5_keeps_its_sentinels(tmp_path):
    pieces = ["<pad>", "</s>", "<unk>", SPACE, "a", "b", f"{SPACE}a"]
    vocabulary = [[piece, -float(number)] for number, piece in enumerate(pieces)]
    vocabulary += [[f"<extra_id_{n}>", 0.0] for n in reversed(range(100))]
    parts = {
        "model": {"type": "Unigram", "unk_id": 2, "vocab": vocabulary},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": WORDS},
        "post_processor": rows("A </s>", "A </s> B </s>"),
    }
    ours = TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))
    assert ours.vocabulary.sentinels == list(range(106, 6, -1))
    assert ours.encode("ab  a ") == [6, 5, 6]
    del parts["model"]["vocab"][-1]
    with pytest.raises(UserError, match="does not end with <extra_id_99>"):
        TokenizerOptions().load_tokenizer(str(write(tmp_path, **parts)))


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (changed(bert(), "normalizer", clean_text=False), "clean_text is false"),
        (bert() | {"normalizer": {"type": "NFC"}}, r'normalizer is \["NFC"\]'),
        (bert() | {"normalizer": None}, r"normalizer is \[\]"),
        (bert() | {"pre_tokenizer": {"type": "Whitespace"}}, "pre_tokenizer is"),
        (bert() | {"post_processor": None}, "post_processor is"),
        (bert() | {"post_processor": rows("[CLS] A", "A B")}, "post_processor is"),
        (changed(bert(), "model", max_input_chars_per_word=9), "per_word is 9"),
        (changed(bert(), "model", continuing_subword_prefix="@@"), "prefix is"),
        (changed(bert(), "model", vocab={"[UNK]": 0, "a": 2}), "are not 0 to"),
        (with_tokens(bert(), False, sine=2400), "added_tokens has 'sine'"),
        (with_tokens(bert(), True, E1=2400), "added_tokens has 'E1'"),
        (albert([*QUOTES, *LOWER, *ACCENTS]), "normalizer has the steps"),
        (albert([*QUOTES, ACCENTS[0], *LOWER]), "normalizer has the steps"),
        (albert([{"type": "NFKC"}]), "steps NFKC, but"),
        (xlnet(ACCENTS), "normalizer has the steps"),
        (xlnet([replace("``", "''"), QUOTES[1]]), "normalizer has the steps"),
        (changed(xlnet(), "model", unk_id=1), "unk_id is 1"),
        (changed(xlnet(), "model", byte_fallback=True), "byte_fallback is true"),
        (xlnet() | {"pre_tokenizer": None}, "pre_tokenizer is"),
        (xlnet() | {"added_tokens": added({".": 9}, False)}, r"added_tokens has '\.'"),
        (
            {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
            "Level",
        ),
        ({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 0}}, "no pieces"),
        ({"model": 3}, "not a tokenizer.json"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    folder = write(tmp_path, **parts)
    with pytest.raises(UserError, match=f"tokenizer.json: .*({said})"):
        TokenizerOptions().load_tokenizer(str(folder))


# --- Writing -------------------------------------------------------------------------

WRITTEN = {
    "uncased": (WORDPIECE / "uncased_vocab.txt", {}),
    "cased": (WORDPIECE / "cased_vocab.txt", {"do_lower_case": False}),
    "korean": (WORDPIECE / "uncased_vocab.txt", {"strip_accents": False}),
    "unspaced": (WORDPIECE / "uncased_vocab.txt", {"split_cjk": False}),
    "albert": (PIECES / "tiny.model", {}),
    "albert cased": (PIECES / "tiny.model", {"do_lower_case": False}),
    "albert accents": (PIECES / "tiny.model", {"strip_accents": False}),
    "xlnet": (PIECES / "xlnet.model", {}),
    "xlnet uncased": (PIECES / "xlnet.model", {"do_lower_case": True}),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, name):
    path, flags = WRITTEN[name]
    ours = TokenizerOptions(**flags).load_tokenizer(str(path))
    check_written(ours, tmp_path, keeps_sigma=path.suffix == ".model")


def test_t5_is_written_with_its_sentinels(tmp_path):
    pieces = ["<pad>", "</s>", "<unk>", SPACE, "a", "b", f"{SPACE}a"]
    kinds_of = {"<unk>": Piece.UNKNOWN, "<pad>": Piece.CONTROL, "</s>": Piece.CONTROL}
    listed = [
        (p, -1.0 - i, kinds_of.get(p, Piece.NORMAL)) for i, p in enumerate(pieces)
    ]
    model = sentencepiece_files.model(listed, sentencepiece_files.Specification())
    (tmp_path / "t5.model").write_bytes(model)
    ours = TokenizerOptions().load_tokenizer(str(tmp_path / "t5.model"))
    theirs = tokenizers.Tokenizer.from_str(ours.hugging_face().json)
    assert theirs.encode("a <extra_id_0>  b a").ids == [6, 106, 3, 5, 6, 1]
    assert theirs.encode("a b", add_special_tokens=False).ids == ours.encode("a b")
    (tmp_path / "tokenizer.json").write_text(ours.hugging_face().json)
    (tmp_path / "t5.model").unlink()
    again = TokenizerOptions().load_tokenizer(str(tmp_path))
    assert again.vocabulary.tokens == ours.vocabulary.tokens


@pytest.mark.parametrize(
    "text",
    [
        *(
            "\u00bd\u200d",
            "2\u20e3 \u00b2\u20e3",
            "x\u00a0\u0310",
            "\u0301\u00bd\u3000",
        ),
        *("a\u0301", "a\u0301\u0328", "a\u0328\u0301", "a\u0330\u0301", "a\u0344"),
        *(
            "\uff41\u0301",
            "u\u0308\u0301",
            "\uff76\uff9e",
            "\u3131\u314f",
            "\ufb01\u200d1",
        ),
    ],
)
def test_marks_of_a_character_are_kept_as_the_map_keeps_them(tmp_path, text):
    """Theirs replaces a character and its marks by what replaces the character."""
    known = [*"12\u2044ax\u00e1\u01d8\u0105u\u30ac\uac00", "\u200d", "\u20e3"]
    known += ["\u0301", "\u0328", "\u0330", "fi"]
    special = {"<pad>": Piece.CONTROL, "</s>": Piece.CONTROL, "<unk>": Piece.UNKNOWN}
    pieces = [(token, 0.0, kind) for token, kind in special.items()]
    pieces += [(token, -1.0, Piece.NORMAL) for token in (SPACE, *known)]
    xlnet = sentencepiece_files.specification((PIECES / "xlnet.model").read_bytes())
    path = tmp_path / "t5.model"
    path.write_bytes(sentencepiece_files.model(pieces, xlnet))
    ours = TokenizerOptions().load_tokenizer(str(path))
    theirs = tokenizers.Tokenizer.from_str(ours.hugging_face().json)
    assert theirs.encode(text, add_special_tokens=False).ids == ours.encode(text)


def test_what_cannot_be_written_is_said():
    digits = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet_digits.model"))
    assert "a number and a comma" in digits.hugging_face().difference
    theirs = tokenizers.Tokenizer.from_str(digits.hugging_face().json)
    # A piece like 5, is never chosen there: mostly, that is the same.
    text = "a 1,000 or 12."
    encoded = theirs.encode(text, add_special_tokens=False)
    assert encoded.ids == digits.encode(text)
    xlnet = TokenizerOptions().load_tokenizer(str(PIECES / "xlnet.model"))
    assert xlnet.hugging_face().difference is None


def charsmap(model: bytes) -> str:
    """The map of characters of a SentencePiece model, as a tokenizer.json has it."""
    sentencepiece_files.library()  # which imports it without its warnings
    from sentencepiece import sentencepiece_model_pb2

    content = sentencepiece_model_pb2.ModelProto.FromString(model)
    charsmap = content.normalizer_spec.precompiled_charsmap
    return base64.b64encode(charsmap).decode()
