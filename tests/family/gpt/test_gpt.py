"""Fine-tuning and pre-training a GPT with the scripts."""

import dataclasses
import json

import numpy as np
import pytest

import continue_text
import run_classifier
import run_swag
from training.queries import continuation
from training.storage.source import Source
from errors import UserError
from family.gpt.encoder import GptConfig
from serving import predictor
from tests import jobs, swag
from tests.pretraining import run
from tests.records import VOCAB_FILE, make_records
from tests.relatives import classifier_files, classifier_flags, write_start

CONFIG = GptConfig(
    vocab_size=9,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=64,
    initializer_range=0.3,  # so that the order of words matters
)
RECIPE = {"optimizer": "openai_adam", "lm_loss_weight": 0.5}


@pytest.mark.exhaustive
def test_similarity_reads_pairs_in_both_orders(tmp_path, untraced):
    classifier_files(tmp_path)
    start, _ = write_start(tmp_path, CONFIG)
    given = classifier_flags(tmp_path, both_orders=True, **RECIPE, **start)
    training = {"do_train": True, "do_eval": True, "do_export": True}
    answering = {"do_predict": True, "test_file": "dev.tsv"}
    jobs.run(run_classifier, given | training | answering)
    lines = (tmp_path / "output" / "metrics.jsonl").read_text().splitlines()
    losses = json.loads(lines[0])
    assert losses["loss"] == pytest.approx(
        losses["task_loss"] + 0.5 * losses["lm_loss"], rel=1e-4
    )
    # Evaluations are the task's, and the order of a pair changes nothing.
    assert "lm_loss" not in jobs.results(tmp_path)
    model = predictor.Predictor(str(tmp_path / "output" / "export"))
    pairs = [{"text_a": "a b a", "text_b": "b"}, {"text_a": "b", "text_b": "a b a"}]
    one, other = (answer["probabilities"] for answer in model.predict(pairs))
    np.testing.assert_allclose(list(one.values()), list(other.values()), atol=1e-6)
    # The export answers as the script does.
    lines = (tmp_path / "output" / "predictions.jsonl").read_text().splitlines()
    said = [json.loads(line) for line in lines[:2]]
    pairs = [{name: line[name] for name in ("text_a", "text_b")} for line in said]
    for line, answer in zip(said, model.predict(pairs), strict=True):
        assert answer["probabilities"] == pytest.approx(line["probabilities"], abs=1e-5)
    for change, message in (
        ({"both_orders": False}, "both_orders was True and is now False"),
        ({"lm_loss_weight": 0.0}, "lm_loss_weight was 0.5 and is now 0.0"),
        ({"text_b_column": None}, "--both_orders is for pairs of texts"),
        ({"lm_loss_weight": -1.0}, "--lm_loss_weight=-1.0: must be at least 0"),
    ):
        with pytest.raises(UserError, match=message):
            jobs.run(run_classifier, given | {"do_train": True} | change)
    with pytest.raises(UserError, match="trained otherwise; pass --both_orders=true"):
        jobs.run(run_classifier, given | {"do_eval": True, "both_orders": False})


@pytest.mark.exhaustive
def test_choices_with_the_language_model(tmp_path, untraced):
    swag.write_files(tmp_path)
    start, weights = write_start(tmp_path, CONFIG)
    given = swag.flags(tmp_path, do_train=True, do_eval=True, **RECIPE, **start)
    jobs.run(run_swag, given)
    assert 0 <= jobs.results(tmp_path)["eval_accuracy"] <= 1
    learned = Source.open(str(tmp_path / "output")).read()
    kept = {name for name in learned if "adam" not in name and "training" not in name}
    assert kept == {*weights, "output_weights", "global_step"}


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("records"), masking="dynamic")


@pytest.fixture
def pre_training(records):
    return {
        "config": dataclasses.replace(CONFIG, vocab_size=3000),
        "objective": "next_token",
        "input_file": [records],
        "optimizer": "openai_adam_cosine",
        "num_train_steps": 4,
        "save_checkpoints_steps": 2,
    }


def test_a_pre_training_is_exported(pre_training, tmp_path, untraced):
    more = {"num_train_steps": 2, "do_export": True, "vocab_file": VOCAB_FILE}
    run(tmp_path, **pre_training | more)
    learned = jobs.weights(tmp_path)
    assert all(
        name.startswith(("gpt/", "global_step", "training/")) for name in learned
    )
    output = str(tmp_path / "output")
    text = "returns the number of"
    (answer,) = predictor.Predictor(output).predict([{"text": text}])
    chances = [token["probability"] for token in answer["tokens"]]
    assert len(chances) == 5 and chances == sorted(chances, reverse=True)
    # The export and the checkpoint agree on what comes next.
    given = {"init_checkpoint": output, "vocab_file": VOCAB_FILE, "num_tokens": 1}
    tokenizer, _, model = continuation.load(continue_text.Options(**given))
    ids = [tokenizer.vocabulary.cls_id, *tokenizer.encode(text)]
    allowed = np.ones(len(tokenizer.vocabulary), bool)
    ((found,),) = continuation.Continuer(model, allowed).extend(ids, 1)
    assert tokenizer.vocabulary.tokens[found] == answer["tokens"][0]["token"]
