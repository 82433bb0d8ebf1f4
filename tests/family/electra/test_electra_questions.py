"""run_squad.py with ELECTRA's head: files, scores, resuming, exports."""

import shutil

import pytest

from errors import UserError
from family.electra.encoder import ElectraConfig
from tests.jobs import results
from tests.span_heads import SIZES, VERSION_2, check_export, write_files
from tests.squad import OUTPUTS, read, run

CONFIG = ElectraConfig(**SIZES)
LEARNS = {"span_head": "electra", "num_train_epochs": [10.0], **VERSION_2}
WHOLE = {"do_train": True, "do_predict": True, "do_eval": True}
WHOLE |= {"null_score_diff_threshold": -1.0, "save_checkpoints_steps": 100}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder after a whole run; only to be read."""
    folder = write_files(tmp_path_factory.mktemp("learned"), CONFIG)
    run(folder, **LEARNS, **WHOLE)
    return folder


@pytest.mark.exhaustive
def test_a_run_learns_answers(learned, tmp_path):
    folder = shutil.copytree(learned, tmp_path / "copy")
    values = results(folder)
    assert values["eval_best_f1"] > 80
    found = [read(folder, name) for name in OUTPUTS]
    predictions, nbest, odds = found
    assert list(predictions) == list(odds) == list(nbest)
    for id, text in predictions.items():
        # The logit of no answer alone decides; the list has texts only.
        assert text == ("" if odds[id] > -1.0 else nbest[id][0]["text"])
        assert "" not in [span["text"] for span in nbest[id]]
    best = {"null_score_diff_threshold": values["eval_best_f1_thresh"]}
    run(folder, do_eval=True, **LEARNS, **best)
    assert results(folder)["eval_f1"] == pytest.approx(values["eval_best_f1"])
    with pytest.raises(UserError, match="another head, --span_head=electra; pass"):
        run(folder, do_eval=True, **VERSION_2)
    with pytest.raises(UserError, match="span_head was 'electra' and is now 'albert'"):
        run(folder, **LEARNS | {"span_head": "albert"}, do_train=True)


@pytest.mark.exhaustive
def test_an_export_answers_what_the_script_predicts(tmp_path, capsys, untraced):
    check_export(tmp_path, "electra", CONFIG, None, capsys)


def test_an_encoder_without_segments_is_refused(tmp_path):
    roberta = pytest.importorskip("family.roberta.config")  # it may be left out
    sizes = {name: size for name, size in SIZES.items() if name != "embedding_size"}
    config = roberta.RobertaConfig(**sizes, pad_token_id=0)
    folder = write_files(tmp_path, config)
    with pytest.raises(UserError, match="does not tell question and text apart"):
        run(folder, do_train=True, span_head="electra", **VERSION_2)
