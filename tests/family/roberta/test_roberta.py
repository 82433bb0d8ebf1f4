"""RoBERTa through every script, with a WordPiece vocabulary: trained, tried, converted."""

import json

import numpy as np
import pytest

import extract_features
import run_classifier
import run_pretraining
from training.storage.source import Source, read_config
from errors import UserError
from family.roberta.config import RobertaConfig
from modeling.architectures.table import make_encoder
from modeling.objectives.span_beams import SpanBeams
from modeling.objectives.span_head import DEFAULT
from tests import jobs
from tests.conversion import convert
from tests.pretraining import flags
from tests.records import VOCAB_FILE, make_records
from tests.relatives import TASKS, classifier_files, classifier_flags
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.interchange import hugging_face

SIZES = {
    "vocab_size": 3000,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 64,
}
# The padding of the vocabulary has the id 0.
CONFIG = RobertaConfig(**SIZES, pad_token_id=0)
RECIPE = {"optimizer": "fairseq_adam", "adam_beta_2": 0.98, "clip_norm": 0.0}


def pretrain(folder, records, config=CONFIG, **changes):
    own = {
        "config": config,
        "input_file": [records],
        "objective": "masked_lm",
        "gradient_accumulation_steps": 2,
    }
    jobs.run(run_pretraining, flags(folder, **own | RECIPE | changes))


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    kind = {"instances": "full_sentences", "masking": "dynamic", "dupe_factor": 1}
    return make_records(folder, **kind)


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory, records):
    """The folder of a run; only to be read."""
    folder = tmp_path_factory.mktemp("pretrained")
    with jobs.untraced():
        does = {"do_eval": True, "max_eval_steps": 2, "num_train_steps": 2}
        pretrain(folder, records, vocab_file=VOCAB_FILE, **does)
    return folder


def test_a_run_from_records_to_every_use_of_it(pretrained, tmp_path):
    output = str(pretrained / "output")
    learned = Source.open(f"{output}/model.ckpt-2").read()
    before = make_encoder(CONFIG, seed=12345)
    same = {
        v.path for v in before.weights if np.array_equal(v.numpy(), learned[v.path])
    }
    # No loss reaches a pooler, and one row that all tokens share is not trained.
    assert same == {
        "roberta/embeddings/token_type_embeddings",
        "roberta/pooler/dense/bias",
        "roberta/pooler/dense/kernel",
    }
    assert not any(f"{name}/adam_m" in learned for name in same)

    folder = str(tmp_path / "theirs")
    convert(output, folder, layout="hugging_face")
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == ["RobertaForMaskedLM"]
    assert (said["max_position_embeddings"], said["pad_token_id"]) == (65, 0)

    (tmp_path / "texts").write_text("the end\nthe ||| end\n")
    vectors = []
    for source in (output, folder):
        extract_features.main(
            extract_features.Options(
                input_file=str(tmp_path / "texts"),
                output_file=str(tmp_path / "features"),
                init_checkpoint=source,
                vocab_file=VOCAB_FILE,
                bert_config_file=f"{folder}/config.json",
                max_seq_length=16,
                layers=[-1],
            )
        )
        vectors.append((tmp_path / "features").read_text())
    assert vectors[0] == vectors[1]


def test_a_run_keeps_its_recipe(pretrained, records):
    for name, change, message in (
        ("optimizer", "adam_weight_decay", "'fairseq_adam' and is now 'adam_weight_de"),
        ("adam_beta_2", 0.999, "0.98 and is now 0.999"),
        ("weight_decay", 0.1, "0.01 and is now 0.1"),
        ("clip_norm", 1.0, "0.0 and is now 1.0"),
    ):
        with pytest.raises(UserError, match=f"{name} was {message}"):
            pretrain(pretrained, records, **{name: change})


# --- Fine-tuning ---------------------------------------------------------------------


def write_theirs(folder, words, **sizes):
    """A model of random weights in Hugging Face's layout, and a vocabulary that fits."""
    unknown, padding, *others = (
        SPECIAL_TOKENS[1],
        SPECIAL_TOKENS[0],
        *SPECIAL_TOKENS[2:],
    )
    tokens = dict.fromkeys([unknown, padding, *others, *words])
    config = RobertaConfig(**SIZES | {"vocab_size": len(tokens)} | sizes)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    weights = {v.path: v.numpy() for v in make_encoder(config).weights}
    hugging_face.write(str(folder), weights, config)


@pytest.mark.exhaustive
@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
def test_every_task_starts_from_a_model_of_hugging_face(tmp_path, untraced, head):
    script, write_files, flags, score = TASKS[head]
    write_files(tmp_path)
    words = (tmp_path / "vocab.txt").read_text().split()
    write_theirs(tmp_path, words)
    given = flags(tmp_path, init_checkpoint=str(tmp_path), train_batch_size=[16])
    jobs.run(script, given | {"do_train": True, "do_eval": True})
    assert 0 <= jobs.results(tmp_path)[score]
    with pytest.raises(UserError, match="weight_decay was 0.01 and is now 0.1"):
        jobs.run(script, given | {"do_train": True, "weight_decay": 0.1})
    convert(
        tmp_path / "output",
        tmp_path / "theirs",
        layout="hugging_face",
        do_lower_case=given.get("do_lower_case", True),
    )
    said = json.loads((tmp_path / "theirs" / "config.json").read_text())
    assert said["architectures"] == [f"RobertaFor{head}"]
    # It answers there as here.
    given |= {"init_checkpoint": str(tmp_path / "theirs"), "do_eval": True}
    given |= {"output_dir": str(tmp_path / "again")}
    jobs.run(script, given)
    here, there = jobs.results(tmp_path), jobs.results(tmp_path, "again")
    assert here[score] == there[score] and here["loss"] == there["loss"]


# --- Refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"adam_beta_2": 1.0}, "--adam_beta_2=1.0: must be above 0 and below 1"),
        ({"adam_beta_2": 0.0}, "--adam_beta_2=0.0: must be above 0 and below 1"),
        ({"weight_decay": -0.1}, "--weight_decay=-0.1: must be at least 0"),
        ({"clip_norm": float("nan")}, "--clip_norm=nan: must be a finite"),
        ({"clip_norm": float("inf")}, "--clip_norm=inf: must be a finite"),
        ({"max_seq_length": 66}, "=66 is more than max_position_embeddings=64, the"),
        (
            {"config": RobertaConfig(**SIZES)},
            'padding is 0, but pad_token_id is 1 in .*; .* set "pad_token_id": 0',
        ),
        (
            {"objective": "masked_lm_next_sentence"},
            "have no next_sentence_labels, which --objective=masked_lm_next_sentence",
        ),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(tmp_path, records, changes, message):
    with pytest.raises(UserError, match=message):
        pretrain(tmp_path, records, **changes)
    assert not (tmp_path / "output").exists()


def test_a_vocabulary_with_other_padding_is_refused(tmp_path):
    """Such as BERT's for a released RoBERTa."""
    classifier_files(tmp_path)
    write_theirs(tmp_path, ["a", "b"])
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "a", "b"]))
    given = classifier_flags(tmp_path, init_checkpoint=str(tmp_path), do_train=True)
    with pytest.raises(UserError, match="vocab.txt: the id of padding is 0, but"):
        jobs.run(run_classifier, given)


def test_a_head_of_another_size_is_named(tmp_path, untraced):
    classifier_files(tmp_path)
    write_theirs(tmp_path, ["a", "b"])
    path = tmp_path / "model.safetensors"
    tensors = hugging_face.HuggingFace(str(path)).read() | {
        "output_weights": np.ones((3, 8), np.float32),
        "output_bias": np.ones(3, np.float32),
    }
    config = read_config(str(tmp_path))
    hugging_face.write(str(tmp_path), tensors, config)
    given = classifier_flags(tmp_path, init_checkpoint=str(tmp_path), do_train=True)
    with pytest.raises(UserError, match=r"its head .* output_weights is \[3,8\] in"):
        jobs.run(run_classifier, given)


def test_a_head_that_tells_question_and_text_apart_is_refused():
    with pytest.raises(UserError, match="roberta does not tell question and text"):
        SpanBeams(DEFAULT).check(RobertaConfig(vocab_size=9))
