"""convert_checkpoint.py: there and back the same bits, and what it changes on the way."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import safetensors.numpy

from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source, read_config
from errors import UserError
from files import local
from modeling.architectures.bert import BertConfig
from modeling.objectives import sentence_pairs, tasks
from tests.conversion import (
    CLASSIFIER,
    GOLDEN,
    RELEASED,
    SPAN,
    TINY,
    TOKENS,
    convert,
    made,
    of_golden,
)
from tests.programs import read_as_tensorflow_1
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.interchange import hugging_face


@pytest.mark.parametrize(
    ("objective", "architecture", "flags"),
    [
        (sentence_pairs.MaskedLMNextSentence(), "BertForPreTraining", {}),
        (tasks.Classification(3), "BertForSequenceClassification", {}),
        (tasks.Tagging(5), "BertForTokenClassification", {"head": "tagging"}),
        (SPAN, "BertForQuestionAnswering", {}),
        (tasks.Choice(), "BertForMultipleChoice", {}),
    ],
)
def test_every_head_comes_back_bit_for_bit(tmp_path, objective, architecture, flags):
    tensors = made(tmp_path, objective)
    there, back = str(tmp_path / "there"), str(tmp_path / "back")
    convert(tmp_path, there, layout="hugging_face", **flags)
    said = json.loads((tmp_path / "there" / "config.json").read_text())
    assert said["architectures"] == [architecture]
    assert said["hidden_act"] == "gelu"  # there, the exact one
    convert(there, back, layout="release")
    found = Source.open(f"{back}/bert_model.ckpt").read()
    extra = found.keys() - tensors.keys()  # choices have no bias in the release
    assert extra == (
        {"output_bias"} if architecture == "BertForMultipleChoice" else set()
    )
    for name, value in tensors.items():
        assert found[name].dtype == value.dtype and np.array_equal(found[name], value)
    assert BertConfig.from_json_file(f"{back}/bert_config.json") == TINY
    assert Vocabulary.load(f"{back}/vocab.txt").tokens == TOKENS


@pytest.mark.parametrize(
    "kind",
    [
        "pretraining",
        "sequence_classification",
        "token_classification",
        "question_answering",
        "multiple_choice",
    ],
)
def test_models_of_transformers_come_back_bit_for_bit(tmp_path, kind):
    source = GOLDEN / "hf" / kind
    released, again = str(tmp_path / "released"), str(tmp_path / "again")
    convert(source, released)
    config = BertConfig.from_json_file(f"{released}/bert_config.json")
    assert config.hidden_act == "gelu_erf"
    convert(released, again, layout="hugging_face")
    expected = safetensors.numpy.load_file(source / "model.safetensors")
    found = safetensors.numpy.load_file(f"{again}/model.safetensors")
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if kind != "multiple_choice" or name != "classifier.bias":
            assert np.array_equal(found[name], value), name


def test_tensorflow_reads_what_is_written_by_the_released_names(tmp_path, capsys):
    convert(RELEASED, tmp_path / "hf", layout="hugging_face")
    convert(tmp_path / "hf", tmp_path / "released")
    written = str(tmp_path / "released" / "bert_model.ckpt")
    capsys.readouterr()
    read_as_tensorflow_1.main(written, RELEASED)
    number = len(Source.open(written).read())
    assert capsys.readouterr().out == f"{number} variables are the same\n"


@pytest.mark.parametrize(
    ("objective", "task", "said"),
    [
        (
            CLASSIFIER,
            {"labels": ["좋아요", "no"]},
            {
                "architectures": ["BertForSequenceClassification"],
                "id2label": {"0": "좋아요", "1": "no"},
                "label2id": {"좋아요": 0, "no": 1},
            },
        ),
        (tasks.Regression(), {"labels": None}, {"problem_type": "regression"}),
        (
            tasks.MultiLabel(2),
            {"labels": ["a", "b"], "several_labels": True},
            {"problem_type": "multi_label_classification"},
        ),
        (
            tasks.Tagging(3),
            {"entity_types": ["LOC"], "tag_scheme": "iobes"},
            {
                "architectures": ["BertForTokenClassification"],
                "id2label": {"0": "O", "1": "B-LOC", "2": "I-LOC"},
            },
        ),
        (
            tasks.Tagging(3),
            {"tags": ["NN", "O", ","], "tag_scheme": "none"},
            {
                "architectures": ["BertForTokenClassification"],
                "id2label": {"0": "NN", "1": "O", "2": ","},
            },
        ),
        (tasks.Choice(), {}, {"architectures": ["BertForMultipleChoice"]}),
    ],
)
def test_what_a_head_is_for_goes_along(tmp_path, objective, task, said):
    """There, back, and there again."""
    made(tmp_path / "a", objective)
    (tmp_path / "a" / "task.json").write_text(json.dumps(task))
    there = "hugging_face"
    convert(tmp_path / "a", tmp_path / "b", layout=there)
    convert(tmp_path / "b", tmp_path / "c")
    convert(tmp_path / "c", tmp_path / "d", layout=there)
    first, second = (
        json.loads((tmp_path / name / "config.json").read_text()) for name in "bd"
    )
    assert first == second
    assert first | said == first


@pytest.mark.parametrize(
    ("without", "architecture"),
    [
        (("pooler", "seq_relationship"), "BertForMaskedLM"),
        (("predictions",), "BertForNextSentencePrediction"),
        (("cls.",), "BertModel"),
    ],
)
def test_a_model_of_one_head_stays_one(tmp_path, without, architecture):
    def drop(tensors):
        return {k: v for k, v in tensors.items() if not any(w in k for w in without)}

    source = of_golden(tmp_path / "source", change=drop)
    convert(source, tmp_path / "released")
    again = tmp_path / "again"
    convert(tmp_path / "released", again, layout="hugging_face")
    said = json.loads((again / "config.json").read_text())
    assert said["architectures"] == [architecture]
    names = safetensors.numpy.load_file(again / "model.safetensors").keys()
    assert names == safetensors.numpy.load_file(source / "model.safetensors").keys()


def test_what_stands_in_a_file_twice_is_left_out(tmp_path):
    def repeat(tensors):
        words = tensors["bert.embeddings.word_embeddings.weight"]
        return tensors | {
            "bert.embeddings.position_ids": np.arange(96)[None],
            "cls.predictions.decoder.weight": words.copy(),
            "cls.predictions.decoder.bias": tensors["cls.predictions.bias"].copy(),
        }

    source = of_golden(tmp_path / "source", change=repeat)
    convert(source, tmp_path / "released")
    found = Source.open(str(tmp_path / "released" / "bert_model.ckpt")).read()
    golden = hugging_face.HuggingFace(
        str(GOLDEN / "hf" / "pretraining" / "model.safetensors")
    ).read()
    assert found.keys() == golden.keys()


def test_without_a_vocabulary_there_is_no_tokenizer(tmp_path, capsys):
    source = str(GOLDEN / "hf" / "pretraining")
    convert(source, tmp_path / "a", layout="hugging_face")
    assert not (tmp_path / "a" / "tokenizer_config.json").exists()
    assert "no vocabulary was next to the input" in capsys.readouterr().out


def test_average_is_the_mean_and_optimizers_stay_behind(tmp_path):
    folders = [tmp_path / "a", tmp_path / "b"]
    tensors = [made(f, SPAN, seed) for seed, f in enumerate(folders)]
    convert([str(f) for f in folders], tmp_path / "mean")
    found = Source.open(str(tmp_path / "mean" / "bert_model.ckpt")).read()
    assert found.keys() == tensors[0].keys()
    for name, value in found.items():
        expected = (tensors[0][name] + tensors[1][name]) / 2
        np.testing.assert_allclose(value, expected, atol=1e-7)


def test_optimizer_is_stripped_unless_it_shall_stay(tmp_path):
    tensors = made(tmp_path, SPAN)
    slots = {f"{n}/adam_{k}": v for n, v in tensors.items() for k in "mv"}
    checkpoint.save(
        Folder.open(str(tmp_path)), 8, tensors | slots | {"global_step": 8}, keep=1
    )
    for keep, names in ((False, tensors.keys()), (True, tensors | slots)):
        output = str(tmp_path / f"kept {keep}")
        convert(tmp_path, output, keep_optimizer=keep)
        found = Source.open(f"{output}/bert_model.ckpt").read()
        assert found.keys() - {"global_step"} == set(names)


def test_added_words_begin_as_the_mean_of_their_pieces(tmp_path, capsys):
    tensors = made(tmp_path, sentence_pairs.MaskedLMNextSentence())
    (tmp_path / "words.txt").write_text("Playing\nthe\n\nplayer\n")
    convert(tmp_path, tmp_path / "more", add_words_file=str(tmp_path / "words.txt"))
    assert "2 words added, 1 already known; vocab_size is 12" in capsys.readouterr().out
    tokens = Vocabulary.load(str(tmp_path / "more" / "vocab.txt")).tokens
    assert tokens == [*SPECIAL_TOKENS, "playing", *TOKENS[6:], "player"]
    tokenizer = WordPiece(Vocabulary(tokens))
    assert tokenizer.tokenize("The PLAYER playing") == ["the", "player", "playing"]
    found = Source.open(str(tmp_path / "more" / "bert_model.ckpt")).read()
    for name in ("bert/embeddings/word_embeddings", "cls/predictions/output_bias"):
        old, new = tensors[name], found[name]
        np.testing.assert_allclose(new[5], (old[6] + old[7]) / 2, rtol=1e-6)
        np.testing.assert_allclose(new[10], (old[6] + old[8]) / 2, rtol=1e-6)
        others = [i for i in range(12) if i not in (5, 10)]
        assert np.array_equal(new[others], old[others])
    # More words than rows make the model larger.
    (tmp_path / "words.txt").write_text("".join(f"word{i}\n" for i in range(9)))
    convert(tmp_path, tmp_path / "larger", add_words_file=str(tmp_path / "words.txt"))
    config = BertConfig.from_json_file(str(tmp_path / "larger" / "bert_config.json"))
    assert config.vocab_size == 18
    model = sentence_pairs.PretrainingModel(config)
    weights = {v.path: v for v in model.weights}
    Source.open(str(tmp_path / "larger")).load(weights, required="")


def test_positions_are_lengthened_by_copies(tmp_path):
    tensors = made(tmp_path, SPAN)
    convert(tmp_path, tmp_path / "longer", max_position_embeddings=15)
    name = "bert/embeddings/position_embeddings"
    table = Source.open(str(tmp_path / "longer" / "bert_model.ckpt")).read()[name]
    old = tensors[name]
    assert np.array_equal(table, np.concatenate([old, old, old[:3]]))
    config = read_config(str(tmp_path / "longer"))
    longer = dataclasses.replace(TINY, max_position_embeddings=15)
    assert config == longer
    convert(tmp_path, tmp_path / "larger", max_position_embeddings=15, vocab_size=20)
    config = read_config(str(tmp_path / "larger"))
    assert config == dataclasses.replace(longer, vocab_size=20)


def test_show_and_compare_tell_what_is_there(tmp_path, capsys):
    a = made(tmp_path / "a", CLASSIFIER)
    made(tmp_path / "b", CLASSIFIER)
    assert convert(tmp_path / "a", show=True) == 0
    said = capsys.readouterr().out
    number = sum(value.size for value in a.values())
    assert f"{number:,} weights in {len(a)} tensors" in said
    assert "output_weights" in said and "[2, 8]" in said
    both = {"input": [str(tmp_path / "a")], "compare_with": str(tmp_path / "b")}
    assert convert(**both) == 0
    made(tmp_path / "b", CLASSIFIER, seed=1)
    assert convert(**both) == 1
    assert "output_bias: differs by" in capsys.readouterr().out


def test_nothing_that_is_there_is_written_over(tmp_path):
    output = tmp_path / "new"
    flags = {"input": [RELEASED], "output_dir": str(output)}
    for layout in ("release", "hugging_face"):
        with local.hold_lock(str(output)):
            with pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
                convert(layout=layout, **flags)
        assert not output.exists()
        output.mkdir()
        (output / ".mine").write_text("mine")
        with pytest.raises(UserError, match="new: is not empty; choose another"):
            convert(layout=layout, **flags)
        assert [path.name for path in output.iterdir()] == [".mine"]
        shutil.rmtree(output)
        convert(layout=layout, **flags)
        assert not [path for path in tmp_path.rglob("*") if "~bert~" in path.name]
        shutil.rmtree(output)


def test_weights_are_on_the_disk_before_they_have_their_name(tmp_path, monkeypatch):
    done = []

    def watch(name, number):
        change = getattr(os, name)

        def watched(*given):
            done.append((name, number(*given)))
            change(*given)

        monkeypatch.setattr(os, name, watched)

    watch("fsync", lambda file: os.fstat(file).st_ino)
    watch("replace", lambda source, target: os.stat(source).st_ino)
    convert(RELEASED, tmp_path / "new", layout="hugging_face")
    weights = os.stat(tmp_path / "new" / "model.safetensors").st_ino
    assert done.index(("fsync", weights)) < done.index(("replace", weights))
