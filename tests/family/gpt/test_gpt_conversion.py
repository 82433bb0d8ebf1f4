"""GPT's files: the release's layout and Hugging Face's, read and written bit for bit."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import tests
from training.storage.folder import Folder
from training.storage.source import ModelFolder, Source
from errors import UserError
from modeling.architectures.table import make_encoder
from tests import jobs, tiny
from tests.conversion import convert
from tests.family.gpt.test_gpt_encoder import read_config, weights
from training.interchange import hugging_face

THEIRS = tests.GOLDEN / "gpt" / "hf"


def by_name(source):
    return Source.open(str(source)).read()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The golden model in both layouts, each converted from the one before."""
    folder = tmp_path_factory.mktemp("layouts")
    source = str(THEIRS)
    for layout in ("release", "hugging_face"):
        target = str(folder / layout)
        convert(source, target, layout=layout)
        source = target
    return folder


def test_a_model_goes_through_both_layouts_bit_for_bit(folder):
    expected = weights()
    assert {v.path: tuple(v.shape) for v in make_encoder(read_config()).weights} == {
        name: value.shape for name, value in expected.items()
    }
    for layout in ("release", "hugging_face"):
        found = by_name(folder / layout)
        jobs.check_same_bits(found, expected)
        assert ModelFolder(Folder.open(str(folder / layout))).config == read_config()
    theirs = load_file(THEIRS / "model.safetensors")
    found = load_file(folder / "hugging_face" / "model.safetensors")
    jobs.check_same_bits(found, theirs)
    said = json.loads((THEIRS / "config.json").read_text())
    for name, value in json.loads(
        (folder / "hugging_face" / "config.json").read_text()
    ).items():
        assert said[name] == value, name


def test_older_files_of_theirs_have_masks_and_no_prefix(tmp_path):
    theirs = load_file(THEIRS / "model.safetensors")
    older = {name.removeprefix("transformer."): v for name, v in theirs.items()}
    mask = {"h.0.attn.bias": np.tri(24, dtype=np.float32)[None, None]}
    tied = {"lm_head.weight": older["tokens_embed.weight"]}
    path = tmp_path / "model.safetensors"
    shutil.copy(THEIRS / "config.json", tmp_path)
    save_file(older | mask | tied, path)
    found = str(tmp_path / "found")
    convert(tmp_path, found)
    assert by_name(found).keys() == weights().keys()
    save_file(older | {"lm_head.weight": older["tokens_embed.weight"] + 1}, path)
    with pytest.raises(UserError, match="lm_head.weight differs from the table"):
        hugging_face.HuggingFace(str(path)).read()


def test_a_head_for_choices_has_theirs(tmp_path):
    head = {"output_weights": np.ones((1, 32), np.float32)}
    hugging_face.write(str(tmp_path), weights() | head, read_config())
    found = load_file(tmp_path / "model.safetensors")
    assert "OpenAIGPTDoubleHeadsModel" in (tmp_path / "config.json").read_text()
    name = "multiple_choice_head.summary"
    np.testing.assert_array_equal(found[f"{name}.weight"], head["output_weights"])
    np.testing.assert_array_equal(found[f"{name}.bias"], [0])
    assert hugging_face.HuggingFace(str(tmp_path / "model.safetensors")).task() == {
        "head": "choice"
    }
    both = {
        "output_weights": np.ones((2, 32), np.float32),
        "output_bias": np.ones(2, np.float32),
    }
    with pytest.raises(UserError, match="no head for classification .* for choice"):
        hugging_face.write(str(tmp_path / "no"), weights() | both, read_config())


def test_rows_for_special_tokens_are_added(tmp_path):
    source, name = str(THEIRS), "gpt/embeddings/word_embeddings"
    tiny.write(tmp_path, map(str, range(118)), read_config())
    given = {"input": [source], "vocab_file": str(tmp_path / "vocab.txt")}
    with pytest.raises(UserError, match="123 tokens, more than vocab_size=120"):
        convert(output_dir=str(tmp_path / "more"), **given)
    convert(output_dir=str(tmp_path / "more"), vocab_size=123, **given)
    found, expected = by_name(tmp_path / "more"), weights()
    assert ModelFolder(Folder.open(str(tmp_path / "more"))).config.vocab_size == 123
    np.testing.assert_array_equal(found[name][:120], expected.pop(name))
    assert 0.01 < found[name][120:].std() < 0.03
    assert all(np.array_equal(found[key], value) for key, value in expected.items())
    with pytest.raises(UserError, match="--vocab_size=9: the model already has 120"):
        convert(source, tmp_path / "less", vocab_size=9)


def test_a_table_saved_under_the_name_of_the_head_alone(tmp_path):
    """As transformers 5 saves an OpenAIGPTDoubleHeadsModel."""
    theirs = load_file(THEIRS / "model.safetensors")
    theirs["lm_head.weight"] = theirs.pop("transformer.tokens_embed.weight")
    save_file(theirs, tmp_path / "model.safetensors")
    shutil.copy(THEIRS / "config.json", tmp_path)
    convert(tmp_path, tmp_path / "ours")
    found, expected = by_name(tmp_path / "ours"), weights()
    jobs.check_same_bits(found, expected)
