"""ELECTRA through the scripts: a run with both networks, what comes of it, refusals."""

import json

import numpy as np
import pytest

import run_pretraining
from training.storage import checkpoint
from training.storage.source import Source
from errors import UserError
from family.electra import replaced_tokens
from family.electra.encoder import ElectraConfig
from modeling.objectives import masked_lm
from serving.predictor import Predictor
from tests import jobs
from tests.pretraining import RECORDS, TINY, flags, results
from tests.records import make_records
from tests.text.generation.settings import VOCAB_FILE
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.wordpiece import WordPiece

CONFIG = ElectraConfig(
    vocab_size=3000,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return make_records(tmp_path_factory.mktemp("records"), masking="dynamic")


def pretrain(folder, records, **changes):
    folder.mkdir(exist_ok=True)
    own = {
        "config": CONFIG,
        "objective": "replaced_tokens",
        "generator_hidden_size": 0.5,
        "optimizer": "electra_adam",
        "input_file": [records],
    }
    jobs.run(run_pretraining, flags(folder, **own | changes))


@pytest.mark.exhaustive
def test_a_run_reports_and_resumes(records, tmp_path, capsys, untraced):
    given = {"do_eval": True, "eval_every_steps": 2, "eval_input_file": [records]}
    given |= {"log_every_steps": 2, "max_eval_steps": 2, "num_train_steps": 4}
    given |= {"save_checkpoints_steps": 2}
    pretrain(tmp_path / "whole", records, **given)
    lines = (tmp_path / "whole" / "output" / "metrics.jsonl").read_text().splitlines()
    names = {
        "loss",
        "masked_lm_loss",
        "disc_loss",
        "masked_lm_accuracy",
        "sampled_masked_lm_accuracy",
        "disc_accuracy",
        "disc_precision",
        "disc_recall",
        "disc_auc",
    }
    for kind in ("train", "eval"):
        rows = [row for row in map(json.loads, lines) if row["kind"] == kind]
        assert rows and all(names <= row.keys() for row in rows)
        for row in rows:
            total = row["masked_lm_loss"] + 50 * row["disc_loss"]
            assert row["loss"] == pytest.approx(total, rel=1e-6)
            assert 7.9 < row["masked_lm_loss"] < 8.1  # ln 3000
            assert 0.3 < row["disc_loss"] < 1.2
            assert 0.3 < row["disc_auc"] < 0.8
    with jobs.dying(2):
        pretrain(tmp_path / "killed", records, **given)
    pretrain(tmp_path / "killed", records, **given)
    assert "continuing from step 2" in capsys.readouterr().out
    expected = jobs.weights(tmp_path / "whole")
    assert {name.split("/")[0] for name in expected} == {
        "electra",
        "generator",
        "generator_predictions",
        "discriminator_predictions",
        "global_step",
        "training",
    }
    found = jobs.weights(tmp_path / "killed")
    jobs.check_same_bits(found, expected)
    first, second = (results(tmp_path / name) for name in ("whole", "killed"))
    assert first == second
    with pytest.raises(UserError, match="disc_weight was 50.0 and is now 40.0"):
        pretrain(tmp_path / "whole", records, **given, disc_weight=40.0)
    with pytest.raises(UserError, match="its run has --generator_layers=1.0"):
        alone = given | {"do_train": False, "generator_layers": 0.5}
        pretrain(tmp_path / "whole", records, **alone)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": TINY}, 'an ELECTRA.*; set "architecture": "electra"'),
        (
            {"input_file": [RECORDS]},
            "the tokens of these records are masked, .*dynamic",
        ),
        ({"generator_hidden_size": 2.0}, "must be above 0 and at most 1"),
        ({"generator_hidden_size": 0.01}, "the generator's hidden_size is 0"),
        ({"disc_weight": 0.0}, "--disc_weight=0.0: must be above 0"),
        (
            {"objective": "masked_lm"},
            "--generator_hidden_size has no effect .* for --objective=replaced_tokens",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused(records, tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        pretrain(tmp_path, records, **changes)


@pytest.mark.exhaustive
def test_the_discriminator_answers_from_raw_text(records, tmp_path):
    with jobs.untraced():
        pretrain(tmp_path, records, vocab_file=VOCAB_FILE)
    output = tmp_path / "output"
    pretrain(tmp_path, records, vocab_file=VOCAB_FILE, do_train=False, do_export=True)
    text = "東京, the Zürich of ᾼ words"
    (answer,) = Predictor(str(output)).predict([{"text": text}])
    tokenizer = WordPiece(Vocabulary.load(VOCAB_FILE))
    ids, starts, ends = tokenizer.encode_with_offsets(text)
    assert [(t["start"], t["end"]) for t in answer["tokens"]] == list(
        zip(starts, ends, strict=True)
    )
    # A discriminator alone, such as Hugging Face's, gives the same.
    weights = Source.open(str(output)).read()
    own = ("electra/", "discriminator_predictions/")
    weights = {
        k: v for k, v in weights.items() if k.startswith(own) and "adam" not in k
    }
    checkpoint.write_bundle(str(tmp_path / "alone" / "model.ckpt"), weights)
    given = {"init_checkpoint": str(tmp_path / "alone" / "model.ckpt")}
    given |= {"vocab_file": VOCAB_FILE, "output_dir": str(tmp_path / "exported")}
    pretrain(tmp_path, records, do_train=False, do_export=True, **given)
    (again,) = Predictor(str(tmp_path / "exported")).predict([{"text": text}])
    assert again == answer
    model = replaced_tokens.DiscriminatorModel(CONFIG)
    Source.open(str(output)).load({v.path: v for v in model.weights}, required="")
    packed = np.array(
        [[tokenizer.vocabulary.cls_id, *ids, tokenizer.vocabulary.sep_id]]
    )
    logits = np.array(model({"input_ids": packed})["discriminator_logits"])[0, 1:-1]
    np.testing.assert_allclose(
        [token["probability"] for token in answer["tokens"]],
        1 / (1 + np.exp(-logits)),
        atol=1e-5,
    )


@pytest.mark.parametrize(
    ("source", "changes", "message"),
    [
        (
            CONFIG,
            {"generator_hidden_size": 1.0},
            "its generator does not fit the model; check --generator_hidden_size.*: "
            r"generator/\S+ is \[8\] in the checkpoint and \[16\] in the model",
        ),
        (
            CONFIG,
            {"config": TINY, "objective": "masked_lm", "generator_hidden_size": 0.25},
            "not in the checkpoint: .*; check that it is the right checkpoint and "
            r"bert_config_file; it contains .*electra/\* x",
        ),
        (
            TINY,
            {},
            r"not in the checkpoint: .*bert_config_file; it contains .*bert/\* x",
        ),
        (
            CONFIG,
            {"objective": "masked_lm", "generator_hidden_size": 0.25},
            "contains a generator and a discriminator, and only the generator fills",
        ),
    ],
    ids=["wider generator", "electra as bert", "bert as electra", "masks"],
)
def test_a_checkpoint_of_another_network_is_refused(
    records, tmp_path, source, changes, message
):
    objective = masked_lm.MaskedLM()
    if source is CONFIG:
        objective = replaced_tokens.ReplacedTokens(0.5)
    weights = {v.path: v.numpy() for v in objective.network(source).weights}
    checkpoint.write_bundle(str(tmp_path / "other" / "model.ckpt-0"), weights)
    given = {"init_checkpoint": str(tmp_path / "other" / "model.ckpt-0")} | changes
    with pytest.raises(UserError, match=message):
        pretrain(tmp_path / "run", records, **given)
