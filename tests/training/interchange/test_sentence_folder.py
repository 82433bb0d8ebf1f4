"""What folders of sentence-transformers say of prompts and capitals."""

import json

import pytest

from errors import UserError
from training.interchange import sentence_folder
from training.interchange.vector_settings import VectorSettings, read_settings


def settings(folder, **files):
    """Of a folder with these files, such as tokenizer_config={...}."""
    made = sentence_folder.module_files(VectorSettings(max_seq_length=8), 16, {})
    for name, content in made.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    for name, content in {"config": {}, **files}.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    path = str(folder / "model.safetensors")
    return read_settings(sentence_folder.SentenceFolder(path).task())


PROMPTS = {  # the prompts, the default, and what queries and passages get
    "both": ({"query": "q ", "passage": "p "}, None, ("q ", "p ")),
    "default": ({"all": "a "}, "all", ("a ", "a ")),
    "a default for passages": ({"query": "q ", "all": "a "}, "all", ("q ", "a ")),
    "the first": ({"document": "", "passage": "p "}, None, ("", "")),
    "corpus": ({"corpus": "c "}, None, ("", "c ")),
    "none": ({"query": None}, None, ("", "")),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_are_found_as_sentence_transformers_does(tmp_path, name):
    prompts, default, expected = PROMPTS[name]
    config = {"prompts": prompts, "default_prompt_name": default}
    found = settings(tmp_path, config_sentence_transformers=config)
    assert (found.query_prompt, found.passage_prompt) == expected


def test_prompts_of_other_names_are_said(tmp_path, capsys):
    prompts = {"query": "q ", "search_document": "d ", "empty": ""}
    found = settings(tmp_path, config_sentence_transformers={"prompts": prompts})
    assert found.prompts == {"query": "q ", "passage": ""}
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        "config_sentence_transformers.json: the prompts 'search_document' are" in line
    )


LOWER = {"max_seq_length": 8, "do_lower_case": True}
TOKENIZERS = {
    "lowercased": ({"tokenizer_config": {"do_lower_case": True}}, False),
    "by default": ({}, False),
    "by its normalizer": (
        {"tokenizer": {"normalizer": {"type": "BertNormalizer", "lowercase": True}}},
        False,
    ),
    "cased": ({"tokenizer_config": {"do_lower_case": False}}, True),
    "cased normalizer": ({"tokenizer": {"normalizer": None}}, True),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_text_that_only_a_module_lowercases_is_refused(tmp_path, name):
    files, is_refused = TOKENIZERS[name]
    if not is_refused:
        settings(tmp_path, sentence_bert_config=LOWER, **files)
        return
    with pytest.raises(UserError, match="do_lower_case is true, but the tokenizer"):
        settings(tmp_path, sentence_bert_config=LOWER, **files)
