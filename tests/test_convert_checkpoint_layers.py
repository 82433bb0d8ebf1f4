"""convert_checkpoint.py --keep_layers: a student of some of a teacher's layers."""

import re

import numpy as np
import pytest

from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source, read_config
from errors import UserError
from modeling.objectives import sentence_pairs
from tests import samples
from tests.conversion import GOLDEN, TINY, TOKENS, convert, made

KEPT = [0, 2, 4, 7, 9, 11]  # DistilBERT's
LAYER = re.compile(r"(?<=/layer_)\d+(?=/)")


def expected_of(teacher, kept):
    """What a student has of the arrays of a teacher."""
    places = {str(old): str(new) for new, old in enumerate(kept)}
    return {
        LAYER.sub(lambda found: places[found[0]], name): value
        for name, value in teacher.items()
        if not (found := LAYER.search(name)) or found[0] in places
    }


def check(folder, teacher, kept):
    """The student in a folder, which has the teacher's arrays to the bit."""
    folder = str(folder)
    found = Source.open(folder).read()
    expected = expected_of(teacher, kept)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype, name
        np.testing.assert_array_equal(found[name], value, name)
    config = read_config(folder)
    assert config.num_hidden_layers == len(kept)
    return config


@pytest.mark.parametrize("layout", ["release", "hugging_face"])
def test_a_student_has_the_layers_of_its_teacher(tmp_path, layout):
    """Of 12; the optimizer's step stays behind, vocabulary and heads come along."""
    teacher = made(tmp_path, sentence_pairs.MaskedLMNextSentence())
    student = tmp_path / "student"
    convert(tmp_path, student, keep_layers=KEPT, layout=layout)
    config = check(student, teacher, KEPT)
    assert config.hidden_act == TINY.hidden_act
    assert (student / "vocab.txt").read_text().split() == TOKENS
    again = tmp_path / "again"
    convert(student, again, keep_layers=[1, 5])
    check(again, teacher, [2, 11])


# Golden model -> the layers that its student has.
STUDENTS = {"hf/token_classification": [1]} | samples.collect("STUDENTS")


@pytest.mark.parametrize(("model", "kept"), STUDENTS.items())
def test_layers_of_models_of_transformers(tmp_path, model, kept):
    source = str(GOLDEN / model)
    convert(source, tmp_path / "released")
    convert(source, tmp_path / "student", keep_layers=kept, layout="hugging_face")
    teacher = Source.open(str(tmp_path / "released")).read()
    check(tmp_path / "student", teacher, kept)
    config = read_config(str(tmp_path / "student"))
    assert config.num_hidden_layers == len(kept)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"keep_layers": []}, "--keep_layers= is empty; list at least one"),
        ({"keep_layers": [0, 2, 2]}, "=0,2,2: list the layers to keep once each"),
        ({"keep_layers": [2, 1]}, "=2,1: list the layers to keep once each, in"),
        ({"keep_layers": [-1, 1]}, "--keep_layers=-1: must be at least 0"),
        ({"keep_layers": [0, 2, 9]}, r"=0,2,9: .* has 3 layers, from 0 to 2; leave"),
        (
            {"keep_layers": [0], "keep_optimizer": True},
            "--keep_optimizer: slots would not fit .* a student of fewer layers",
        ),
    ],
)
def test_refusals(tmp_path, flags, message):
    given = {
        "input": [str(GOLDEN / "checkpoint" / "bert_model.ckpt")],
        "output_dir": str(tmp_path / "new"),
    }
    with pytest.raises(UserError, match=message):
        convert(**given | flags)
    assert not (tmp_path / "new").exists()


def test_a_head_that_weights_every_layer_is_refused(tmp_path):
    tensors = made(tmp_path, sentence_pairs.MaskedLMNextSentence())
    weights = {"layer_weights": np.zeros(12, np.float32)}
    checkpoint.save(Folder.open(str(tmp_path)), 8, tensors | weights, keep=1)
    with pytest.raises(UserError, match="has a weight for each of the teacher's"):
        convert(tmp_path, tmp_path / "new", keep_layers=[0])
