"""The tokenizer beside a model in Hugging Face layout: it must split text as ours."""

import json

import pytest

import tests
from training.run import settle
from training.storage.source import Source
from errors import UserError
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.table import TOKENIZERS, TokenizerOptions
from text.tokenizers.word_splitter import WordSplitter


def check(folder, splitter):
    text = Source.open(str(folder)).text
    text.check(splitter.settings, TOKENIZERS["wordpiece"])


def test_the_tokens_of_a_tokenizer_json_next_to_weights_count(tmp_path):
    ours, other = (
        TokenizerOptions().load_tokenizer(str(tests.GOLDEN / name))
        for name in ("tokenization/uncased_vocab.txt", "tokenization/cased_vocab.txt")
    )
    (tmp_path / "tokenizer.json").write_text(ours.hugging_face().json)
    settle.check_ids(ours, FolderText(str(tmp_path)))
    with pytest.raises(UserError, match="token .* in .*tokenizer.json, next to"):
        settle.check_ids(other, FolderText(str(tmp_path)))


@pytest.mark.parametrize(
    ("said", "flags"),
    [
        ({"do_lower_case": False}, "--do_lower_case=false --strip_accents=false"),
        ({"do_lower_case": True, "strip_accents": False}, "--strip_accents=false"),
        ({"do_lower_case": True, "tokenize_chinese_chars": False}, "--split_cjk=false"),
    ],
)
def test_text_split_otherwise_is_refused(folder, said, flags):
    (folder / "tokenizer_config.json").write_text(json.dumps(said))
    with pytest.raises(UserError, match=f"split differently; pass {flags}$"):
        check(folder, WordSplitter())
    values = dict(flag.removeprefix("--").split("=") for flag in flags.split())
    given = {name: value == "true" for name, value in values.items()}
    check(folder, WordSplitter(**given))


def test_a_tokenizer_json_alone_says_how_text_is_split(tmp_path):
    """Next to a vocab.txt, too, with which a flag was free before."""
    path = str(tests.GOLDEN / "tokenization" / "uncased_vocab.txt")
    cased = TokenizerOptions(do_lower_case=False).load_tokenizer(path)
    (tmp_path / "tokenizer.json").write_text(cased.hugging_face().json)
    (tmp_path / "model.safetensors").touch()
    check(tmp_path, cased.splitter)
    with pytest.raises(UserError, match="tokenizer.json: .*pass --do_lower_case=false"):
        check(tmp_path, WordSplitter())


def test_tokenizer_that_says_nothing_passes(folder):
    for splitter in (WordSplitter(), WordSplitter(False), WordSplitter(True, False)):
        check(folder, splitter)
    (folder / "tokenizer_config.json").write_text("{}")
    for splitter in (WordSplitter(), WordSplitter(False), WordSplitter(True, False)):
        check(folder, splitter)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"tokenizer_class": "BertJapaneseTokenizer"}', "'BertJapaneseTokenizer'"),
        ('{"do_lower_case":', "not JSON"),
        ("3", "is a JSON int"),
    ],
)
def test_other_tokenizers_are_refused(folder, content, message):
    (folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(UserError, match=f"tokenizer_config.json:.*{message}"):
        check(folder, WordSplitter())


def test_the_flags_that_a_models_text_needs_are_told(tmp_path):
    (tmp_path / "model.safetensors").touch()
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    known = Source.open(str(tmp_path)).text.of_weights(TOKENIZERS["wordpiece"])
    assert known == {"do_lower_case": False, "strip_accents": False}
    (tmp_path / "model.safetensors").rename(tmp_path / "model.ckpt.index")
    assert not Source.open(str(tmp_path)).text.of_weights(TOKENIZERS["wordpiece"])
