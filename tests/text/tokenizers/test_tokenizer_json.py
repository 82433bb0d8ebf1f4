"""A tokenizer.json as transformers 5 writes it is a vocabulary, and says how to split."""

import json

import pytest

import tests
from errors import UserError
from tests.tokenizer_json import (
    TEXT,
    bert,
    changed,
    check_refused,
    check_written,
    rows,
    with_tokens,
    write,
)
from text.tokenizers.table import (
    OpenVocabulary,
    TokenizerOptions,
    load_vocabulary,
)

WORDPIECE = tests.GOLDEN / "tokenization"
PIECES = tests.GOLDEN / "sentencepiece"


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
    assert OpenVocabulary.open(str(folder)).path == path
    ours = TokenizerOptions().load_tokenizer(str(folder))
    vocabulary = str(WORDPIECE / "uncased_vocab.txt")
    same = TokenizerOptions(**expected).load_tokenizer(vocabulary)
    assert ours.encode(TEXT) == same.encode(TEXT)
    assert ours.settings == same.settings  # also that the vocabulary is the same
    assert ours.files == same.files
    assert load_vocabulary(path).tokens == same.vocabulary.tokens
    assert (
        OpenVocabulary.open(path).resolve(TokenizerOptions()).items()
        <= ours.settings.items()
    )
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
        (
            {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}},
            "Level",
        ),
        ({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 0}}, "no pieces"),
        ({"model": 3}, "not a tokenizer.json"),
    ],
)
def test_what_is_not_done_exactly_is_refused_by_name(tmp_path, parts, said):
    check_refused(tmp_path, parts, said)


# --- Writing -------------------------------------------------------------------------

WRITTEN = {
    "uncased": (WORDPIECE / "uncased_vocab.txt", {}),
    "cased": (WORDPIECE / "cased_vocab.txt", {"do_lower_case": False}),
    "korean": (WORDPIECE / "uncased_vocab.txt", {"strip_accents": False}),
    "unspaced": (WORDPIECE / "uncased_vocab.txt", {"split_cjk": False}),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_gives_our_ids_and_is_read_back(tmp_path, name):
    path, flags = WRITTEN[name]
    ours = TokenizerOptions(**flags).load_tokenizer(str(path))
    check_written(ours, tmp_path)
