"""What convert_checkpoint.py does with files and heads that one layout alone has."""

import json

import pytest

from training.storage.folder import Folder
from errors import UserError
from modeling.objectives import masked_lm, span_beams
from run_squad import SPAN_HEADS
from tests.conversion import CLASSIFIER, convert, made


@pytest.mark.slow
def test_how_text_became_ids_goes_along(tmp_path):
    made(tmp_path / "a", masked_lm.MaskedLM())
    noted = {"do_lower_case": True, "strip_accents": True, "vocab_sha256": "of a"}
    (tmp_path / "a" / "text.json").write_text(json.dumps(noted))
    (tmp_path / "words.txt").write_text("player\n")
    convert(input=[str(tmp_path / "a")], output_dir=str(tmp_path / "b"))
    assert json.loads((tmp_path / "b" / "text.json").read_text()) == noted
    words = {"add_words_file": str(tmp_path / "words.txt")}
    convert(input=[str(tmp_path / "b")], output_dir=str(tmp_path / "c"), **words)
    said = json.loads((tmp_path / "c" / "text.json").read_text())
    assert said == {"do_lower_case": True, "strip_accents": True}  # of a no more
    theirs = {"layout": "hugging_face", "output_dir": str(tmp_path / "d")}
    convert(input=[str(tmp_path / "a")], **theirs)
    assert not (tmp_path / "d" / "text.json").exists()  # tokenizer_config.json says it
    convert(input=[str(tmp_path / "d")], output_dir=str(tmp_path / "f"))
    said = json.loads((tmp_path / "f" / "text.json").read_text())
    assert said == {"do_lower_case": True, "strip_accents": True, "split_cjk": True}
    (tmp_path / "a" / "text.json").write_text("[]")  # somebody else's
    convert(input=[str(tmp_path / "a")], output_dir=str(tmp_path / "e"))
    assert not (tmp_path / "e" / "text.json").exists()


@pytest.mark.slow
def test_a_task_of_hugging_face_knows_how_its_text_became_ids(tmp_path):
    made(tmp_path / "a", CLASSIFIER)
    theirs = {"layout": "hugging_face", "output_dir": str(tmp_path / "b")}
    convert(input=[str(tmp_path / "a")], do_lower_case=False, **theirs)
    convert(input=[str(tmp_path / "b")], output_dir=str(tmp_path / "c"))
    _, noted = Folder.open(str(tmp_path / "c")).text
    assert noted["head"] == "classification"
    assert noted["do_lower_case"] is False


@pytest.mark.slow
@pytest.mark.parametrize("head", SPAN_HEADS)
def test_a_head_that_hugging_face_has_not_is_one_line_of_advice(tmp_path, head):
    made(tmp_path / "a", span_beams.SpanBeams(SPAN_HEADS[head]))
    message = (
        r"no name for it, nor for (9|10) more tensors; keep the model in the "
        r"release's layout \(--layout=release\), or .* that is --span_head=independent"
    )
    with pytest.raises(UserError, match=message):
        convert(
            input=[str(tmp_path / "a")],
            output_dir=str(tmp_path / "b"),
            layout="hugging_face",
        )
    assert not (tmp_path / "b" / "model.safetensors").exists()
