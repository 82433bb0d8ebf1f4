"""run_squad.py with ALBERT's head: exports and refusals."""

import pytest

from training.storage import checkpoint
from errors import UserError
from family.albert.encoder import AlbertConfig
from modeling.objectives import masked_lm
from tests.span_heads import SIZES, VERSION_2, check_export, write_files
from tests.squad import run

CONFIG = AlbertConfig(**SIZES)


def test_a_pre_trained_encoder_has_no_head_of_any_kind(tmp_path):
    folder = write_files(tmp_path, CONFIG)
    network = masked_lm.MaskedLM().network(CONFIG)
    weights = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(folder / "encoder" / "model.ckpt-0"), weights)
    (folder / "encoder" / "text.json").write_text('{"do_lower_case": true}')
    given = {"span_head": "albert", "do_predict": True, **VERSION_2}
    with pytest.raises(UserError, match="not in the checkpoint: .* without this head"):
        run(folder, init_checkpoint=str(folder / "encoder"), **given)


@pytest.mark.exhaustive
def test_an_export_answers_what_the_script_predicts(tmp_path, capsys, untraced):
    check_export(tmp_path, "albert", CONFIG, -0.9, capsys)


def test_what_does_not_fit_is_refused(tmp_path):
    folder = write_files(tmp_path, CONFIG)
    with pytest.raises(
        UserError, match="--start_n_top has no effect without --span_head"
    ):
        run(folder, do_train=True, start_n_top=3)
    with pytest.raises(UserError, match="--end_n_top=0: must be from 1 to 1,000"):
        run(folder, do_train=True, span_head="albert", end_n_top=0)
    with pytest.raises(UserError, match="remove --lstm_layers"):
        run(folder, do_train=True, span_head="albert", lstm_layers=1, **VERSION_2)
