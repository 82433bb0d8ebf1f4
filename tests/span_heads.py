"""Runs of run_squad.py with heads that try beams."""

import dataclasses
import json

import numpy as np
import pytest

import predict
from serving.predictor import Predictor
from tests import squad
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
VERSION_2 = {"version_2_with_negative": True}


def write_files(folder, config):
    squad.write_files(folder)
    for name, seed, number in (("train.json", 1, 96), ("dev.json", 2, 30)):
        content = shining(number, seed, impossible=True)
        (folder / name).write_text(json.dumps(content))
    (folder / "config.json").write_text(config.to_json_string())
    return folder


def check_export(folder, head, config, threshold, capsys):
    """It answers what the script predicts."""
    write_files(folder, dataclasses.replace(config, initializer_range=0.3))
    given = {"span_head": head}
    version_2 = threshold is not None
    if version_2:
        given |= VERSION_2 | {"null_score_diff_threshold": threshold}
    else:
        for name, seed in (("train.json", 1), ("dev.json", 2)):
            (folder / name).write_text(json.dumps(shining(48, seed)))
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
