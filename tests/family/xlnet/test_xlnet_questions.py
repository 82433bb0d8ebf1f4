"""run_squad.py with XLNet's head."""

import dataclasses

import pytest

import run_squad
from training.storage import checkpoint
from training.storage.folder import Folder
from family.xlnet.encoder import XlnetConfig
from tests import squad
from tests.span_heads import write_files
from tests.squad import OUTPUTS, read, run

CONFIG = XlnetConfig(
    *(24, 16, 1, 2, 8, 16, "gelu", True),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


@pytest.mark.exhaustive
def test_answers_do_not_depend_on_padding_and_batches(tmp_path, untraced):
    head = "xlnet"
    folder = write_files(tmp_path, CONFIG)
    given = run_squad.Options(**squad.flags(folder, do_predict=True, span_head=head))
    config = dataclasses.replace(CONFIG, initializer_range=0.5)
    (folder / "config.json").write_text(config.to_json_string())
    tokenizer = run_squad.TrainableModel(given).tokenizer
    model = run_squad.Squad(given, tokenizer).objective().network(config, seed=1)
    weights = {variable.path: variable.numpy() for variable in model.weights}
    checkpoint.save(Folder.open(str(folder / "random")), 1, weights, keep=1)
    given = {"do_predict": True, "init_checkpoint": str(folder / "random")}
    given |= {"span_head": head, "max_seq_length": 40}
    run(folder, **given)
    lists = read(folder, OUTPUTS[1])
    run(folder, length_buckets=False, predict_batch_size=3, **given)
    again = read(folder, OUTPUTS[1])
    for id, entries in lists.items():
        assert [e["text"] for e in entries] == [e["text"] for e in again[id]]
        assert [e["start_logit"] for e in entries] == pytest.approx(
            [e["start_logit"] for e in again[id]], abs=1e-4
        )
