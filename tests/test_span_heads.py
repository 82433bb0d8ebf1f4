"""run_squad.py with the heads of ALBERT and ELECTRA: files, scores, resuming, exports."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

import predict
import run_squad
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from family.albert.encoder import AlbertConfig
from family.electra.encoder import ElectraConfig
from family.roberta.config import RobertaConfig
from family.xlnet.encoder import XlnetConfig
from modeling.objectives import masked_lm
from serving.predictor import Predictor
from tests import squad
from tests.jobs import results
from tests.squad import OUTPUTS, read, run, shining

SIZES = {
    "vocab_size": 24,
    "embedding_size": 8,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
}
CONFIGS = {
    "albert": AlbertConfig(**SIZES),
    "electra": ElectraConfig(**SIZES),
    "xlnet": XlnetConfig(
        *(24, 16, 1, 2, 8, 16, "gelu", True),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ),
}
VERSION_2 = {"version_2_with_negative": True}


@pytest.fixture
def folder(tmp_path, head):
    return write_files(tmp_path, CONFIGS[head])


def write_files(folder, config):
    squad.write_files(folder)
    for name, seed, number in (("train.json", 1, 96), ("dev.json", 2, 30)):
        content = shining(number, seed, impossible=True)
        (folder / name).write_text(json.dumps(content))
    (folder / "config.json").write_text(config.to_json_string())
    return folder


LEARNS = {"span_head": "electra", "num_train_epochs": [10.0], **VERSION_2}
WHOLE = {"do_train": True, "do_predict": True, "do_eval": True}
WHOLE |= {"null_score_diff_threshold": -1.0, "save_checkpoints_steps": 100}


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder after a whole run; only to be read."""
    folder = write_files(tmp_path_factory.mktemp("learned"), CONFIGS["electra"])
    run(folder, **LEARNS, **WHOLE)
    return folder


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_run_resumes(learned, tmp_path):
    folder = shutil.copytree(learned, tmp_path / "copy")
    found = [read(folder, name) for name in OUTPUTS]
    output = folder / "output"
    straight = Source.open(str(output)).read()
    for name in ("index", "data-00000-of-00001"):
        (output / f"model.ckpt-120.{name}").unlink()
    (output / "checkpoint").unlink()
    run(folder, **LEARNS, **WHOLE)
    resumed = Source.open(str(output)).read()
    assert straight.keys() == resumed.keys()
    for name, value in straight.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)
    assert [read(folder, name) for name in OUTPUTS] == found


@pytest.mark.parametrize("head", ["albert"])
def test_a_pre_trained_encoder_has_no_head_of_any_kind(folder, head):
    network = masked_lm.MaskedLM().network(CONFIGS[head])
    weights = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(folder / "encoder" / "model.ckpt-0"), weights)
    (folder / "encoder" / "text.json").write_text('{"do_lower_case": true}')
    given = {"span_head": head, "do_predict": True, **VERSION_2}
    with pytest.raises(UserError, match="not in the checkpoint: .* without this head"):
        run(folder, init_checkpoint=str(folder / "encoder"), **given)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("head", "threshold"),
    [
        ("albert", -0.9),
        ("electra", None),
    ],
)
def test_an_export_answers_what_the_script_predicts(
    folder, head, threshold, capsys, untraced
):
    given = {"span_head": head}
    version_2 = threshold is not None
    if version_2:
        given |= VERSION_2 | {"null_score_diff_threshold": threshold}
    else:
        for name, seed in (("train.json", 1), ("dev.json", 2)):
            (folder / name).write_text(json.dumps(shining(48, seed)))
    config = dataclasses.replace(CONFIGS[head], initializer_range=0.3)
    (folder / "config.json").write_text(config.to_json_string())
    run(folder, do_train=True, do_predict=True, do_export=True, **given)
    content = json.loads((folder / "dev.json").read_text())
    paragraphs = content["data"][0]["paragraphs"]
    requests = [
        {"question": p["qas"][0]["question"], "context": p["context"]}
        for p in paragraphs
    ]
    predictor = Predictor(str(folder / "output"))
    answers = predictor.predict(requests)
    predictions, nbest = (read(folder, name) for name in OUTPUTS[:2])
    for paragraph, answer in zip(paragraphs, answers, strict=True):
        id = paragraph["qas"][0]["id"]
        assert answer["answer"] == predictions[id]
        assert paragraph["context"][answer["start"] : answer["end"]] == answer["answer"]
        if answer["answer"]:
            chosen = nbest[id][0]
            score = chosen["start_logit"] + chosen["end_logit"]
            assert answer["probability"] == pytest.approx(
                chosen["probability"], abs=1e-5
            )
        else:
            score = answer["null_odds"]
            assert answer["probability"] == pytest.approx(1 / (1 + np.exp(-score)))
        assert answer["score"] == pytest.approx(score, rel=1e-4, abs=1e-4)
    if version_2:
        odds = read(folder, "null_odds.json")
        found = [answer["null_odds"] for answer in answers]
        assert found == pytest.approx(list(odds.values()), abs=1e-4)
        assert "" in predictions.values()
    request = folder / "request.jsonl"
    request.write_text(json.dumps(requests[0]) + "\n")
    capsys.readouterr()
    predict.main(
        predict.Options(model_dir=str(folder / "output"), input_file=str(request))
    )
    assert json.loads(capsys.readouterr().out)["answer"] == answers[0]["answer"]


@pytest.mark.slow
@pytest.mark.exhaustive
def test_answers_do_not_depend_on_padding_and_batches(tmp_path, untraced):
    head = "xlnet"
    folder = write_files(tmp_path, CONFIGS[head])
    given = run_squad.Options(**squad.flags(folder, do_predict=True, span_head=head))
    config = dataclasses.replace(CONFIGS[head], initializer_range=0.5)
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


def test_what_does_not_fit_is_refused(tmp_path):
    folder = write_files(tmp_path, CONFIGS["albert"])
    with pytest.raises(
        UserError, match="--start_n_top has no effect without --span_head"
    ):
        run(folder, do_train=True, start_n_top=3)
    with pytest.raises(UserError, match="--end_n_top=0: must be from 1 to 1,000"):
        run(folder, do_train=True, span_head="albert", end_n_top=0)
    with pytest.raises(UserError, match="remove --lstm_layers"):
        run(folder, do_train=True, span_head="albert", lstm_layers=1, **VERSION_2)
    sizes = {k: v for k, v in SIZES.items() if k != "embedding_size"}
    config = RobertaConfig(**sizes, pad_token_id=0)
    (folder / "config.json").write_text(config.to_json_string())
    with pytest.raises(UserError, match="does not tell question and text apart"):
        run(folder, do_train=True, span_head="electra", **VERSION_2)
