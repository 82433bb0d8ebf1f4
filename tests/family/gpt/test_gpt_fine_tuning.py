"""GPT's fine-tuning: ten updates of OpenAI's, with each of its schedules."""

import dataclasses
import json

import numpy as np
import pytest

import continue_text
import run_classifier
import run_swag
from training.backend import tf
from training.queries import continuation
from training.run import distribution, loop
from training.storage.source import Source
from errors import UserError
from family.gpt.encoder import GptConfig
from modeling import losses
from modeling.architectures.bert import BertConfig
from modeling.architectures.table import make_encoder
from modeling.objectives import tasks
from modeling.objectives.with_language_model import WithLanguageModel
from modeling.optimizers.table import OptimizerSettings
from serving import predictor
from tests import jobs, swag
from tests.family.gpt.test_gpt_encoder import golden, load, read_config
from tests.log import Log
from tests.modeling.objectives import test_first_weights_of_heads as first_weights
from tests.modeling.objectives.test_pooling import check_two_orders
from tests.pretraining import run
from tests.records import VOCAB_FILE, make_records
from tests.relatives import classifier_files, classifier_flags, write_start

SCHEDULES = {
    "linear": "openai_adam",
    "cosine": "openai_adam_cosine",
    "constant": "openai_adam_constant",
}
# Of final_*: the release's name -> ours.
FINAL = {
    "h2.ln_2.g": "gpt/encoder/layer_2/output/LayerNorm/gamma",
    "h1.mlp.c_proj.w": "gpt/encoder/layer_1/output/dense/kernel",
}


def rows():
    theirs = golden("hf/outputs.npz")
    return {
        "input_ids": theirs["in_ids"],
        "input_mask": theirs["in_mask"].astype(np.int32),
        "segment_ids": np.zeros_like(theirs["in_ids"]),
        "label_ids": theirs["in_labels"],
    }


def trained(schedule, data):
    """The log of ten updates on each of the rows' batches, and the trainer."""
    openai = golden("outputs.npz")
    objective = WithLanguageModel(tasks.Choice(), 0.5)
    run = loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(read_config()),
        objective,
        loop.LoopSettings(
            num_train_steps=10,
            num_warmup_steps=2,
            learning_rate=1e-2,
            batch_size=4,
            optimizer=OptimizerSettings(SCHEDULES[schedule]),
            save_every_steps=0,
            log_every_steps=1,
        ),
    )
    load(run.model)
    run.weights["output_weights"].assign(openai["clf_w"].T)
    log = Log()
    run.train(lambda first, part: data, "nowhere", log)
    return log, run


def test_the_logits_and_losses_of_choices_equal_openais():
    openai, batch = golden("outputs.npz"), rows()
    objective = tasks.Choice()
    model = load(objective.network(read_config()))
    model.output_weights.assign(openai["clf_w"].T)
    logits = model(batch)["logits"]
    expected = openai["clf_logits"]  # with a bias, which is the same for all choices
    np.testing.assert_allclose(logits + openai["clf_b"], expected, rtol=0, atol=1e-4)
    for number, loss in enumerate(openai["clf_losses"]):
        row = {name: value[[number]] for name, value in batch.items()}
        outputs = {"logits": logits[number : number + 1]}
        found = losses.mean(*objective.losses(row, outputs)["loss"])
        assert float(found) == pytest.approx(loss, abs=1e-4)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_ten_updates_equal_openais(schedule, untraced):
    openai = golden("outputs.npz")
    data = tf.data.Dataset.from_tensors(rows()).repeat()
    log, run = trained(schedule, data)
    trace = openai[f"trace_warmup_{schedule}"]
    # Rounding grows from update to update; the release's own numbers, computed again by
    # other code, differ by 4e-4.
    for column, (name, close) in enumerate((("loss", 2e-4), ("gradient_norm", 5e-3))):
        found = [row[name] for row in log.rows]
        np.testing.assert_allclose(found, trace[:10, column], rtol=close, atol=0)
    final = f"final_warmup_{schedule}_"
    found = {name: run.weights[path].numpy() for name, path in FINAL.items()}
    found["we"] = np.concatenate(
        [run.weights[f"gpt/embeddings/{n}_embeddings"] for n in ("word", "position")]
    )
    found["h0.attn.c_attn.b"] = np.concatenate(
        [
            run.weights[f"gpt/encoder/layer_0/attention/self/{name}/bias"]
            for name in ("query", "key", "value")
        ]
    )
    found["clf.w"] = run.weights["output_weights"].numpy().T
    assert {final + name for name in found} == {
        k for k in openai if k.startswith(final)
    }
    for name, value in found.items():
        expected = openai[final + name].reshape(value.shape)
        if name.endswith("c_attn.b"):
            # The keys' have no gradient but rounding, which Adam makes as large as any.
            value, expected = (np.delete(x, np.s_[32:64]) for x in (value, expected))
        close = 5e-4 if schedule == "constant" else 1e-4
        np.testing.assert_allclose(value, expected, rtol=0, atol=close, err_msg=name)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("warmup", [0.002, 0.1])
def test_schedules_are_openais(schedule, warmup):
    openai, steps = golden("outputs.npz"), 1000
    rate = OptimizerSettings(SCHEDULES[schedule]).learning_rate
    x = openai["schedule_x"]
    found = [rate(round(some * steps), 1.0, steps, round(warmup * steps)) for some in x]
    expected = openai[f"schedule_{warmup}_warmup_{schedule}"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.exhaustive
def test_rows_of_varying_length_and_accumulation_have_the_same_loss_and_gradients():
    """As length buckets give them; what only fills up a row or a batch does not count."""
    rng, config = np.random.default_rng(0), tiny()
    batch = {
        "input_ids": rng.integers(1, 40, (4, 12), dtype=np.int32),
        "input_mask": np.tri(4, 12, 7, dtype=np.int32),
        "segment_ids": np.zeros((4, 12), np.int32),
        "label_ids": np.int32([0, 1, 1, 0]),
        "is_real_example": np.float32([1, 1, 1, 0]),
    }
    objective = WithLanguageModel(tasks.Classification(2), 0.5)

    def sums(spec_length, accumulation):
        run = loop.Trainer(
            distribution.make("one"),
            lambda: objective.network(config, seed=1),
            objective,
            loop.LoopSettings(
                2,
                0,
                1e-3,
                4,
                accumulation_steps=accumulation,
                save_every_steps=0,
                log_every_steps=1,
            ),
        )
        spec = {
            name: tf.TensorSpec([4, spec_length][: x.ndim], x.dtype)
            for name, x in batch.items()
        }
        data = tf.data.Dataset.from_generator(
            lambda: iter([batch] * 2), output_signature=spec
        )
        log = Log()
        run.train(lambda first, part: data, "nowhere", log)
        return log.rows

    plain = sums(12, 1)
    assert plain[1]["lm_loss"] < plain[0]["lm_loss"] < 1.1 * np.log(80)
    total = plain[0]["task_loss"] + 0.5 * plain[0]["lm_loss"]
    assert plain[0]["loss"] == pytest.approx(total)
    for row, expected in zip(sums(None, 2), plain, strict=True):
        for name, value in expected.items():
            assert row[name] == pytest.approx(value, rel=1e-5), name


def tiny():
    return GptConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def test_only_a_gpt_has_a_language_model_without_weights():
    objective = WithLanguageModel(tasks.Choice(), 0.5)
    objective.check(read_config())
    with pytest.raises(UserError, match="'bert' has weights that a task does not"):
        objective.check(BertConfig(vocab_size=9))


def test_the_vectors_of_two_orders_are_added_below_the_head():
    check_two_orders(GptConfig(40, 16, 1, 2, 32, max_position_embeddings=40))


def test_first_weights_of_heads_are_not_cut_off():
    config = GptConfig(**first_weights.SIZES)
    encoder = make_encoder(config).embeddings.position_embeddings.numpy()
    for weights in (first_weights.drawn(config, tasks.Classification(40)), encoder):
        assert np.abs(weights).max() > 0.04
        assert weights.std() == pytest.approx(0.02, rel=0.1)


# --- Fine-tuning and pre-training a GPT with the scripts -----------------------------


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


@pytest.mark.exhaustive
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
