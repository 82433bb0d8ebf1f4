"""Models that go to transformers and come from it give the same logits there and here."""

import json
import os
import re
import subprocess
import sys
import unicodedata

import numpy as np
import pytest

import convert_checkpoint
import tests
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source, read_config
from modeling.architectures.bert import BertConfig, BertEncoder
from modeling.objectives import sentence_pairs, tasks
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.interchange import hugging_face

ROOT = tests.ROOT
SPLITTING = ROOT / "tests" / "golden" / "tokenization"

pytestmark = pytest.mark.slow

LENGTH = 12
TINY = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
}
POOLER = {"bert.pooler.dense.bias", "bert.pooler.dense.weight"}


# Name -> what makes our network, their class, what task.json says.
HEADS = {
    "encoder": (BertEncoder, "BertModel", {}),
    "pretraining": (
        sentence_pairs.MaskedLMNextSentence().network,
        "BertForPreTraining",
        {},
    ),
    "classes": (
        tasks.Classification(3).network,
        "BertForSequenceClassification",
        {"labels": list("012"), "label_names": ["no", "ja", "좋아요"]},
    ),
    "regression": (
        tasks.Regression().network,
        "BertForSequenceClassification",
        {"labels": None},
    ),
    "several": (
        tasks.MultiLabel(4).network,
        "BertForSequenceClassification",
        {"labels": list("abcd"), "several_labels": True},
    ),
    "span": (tasks.Span().network, "BertForQuestionAnswering", {}),
    "choice": (tasks.Choice().network, "BertForMultipleChoice", {}),
    "tags": (
        tasks.Tagging(5).network,
        "BertForTokenClassification",
        {"entity_types": ["LOC", "PER"], "tag_scheme": "iob1"},
    ),
}
# Their name of the exact form is the release's of the tanh form.
GELUS = {"gelu": "gelu_new", "gelu_erf": "gelu"}
CASES = [(head, gelu) for head in HEADS for gelu in GELUS]

# Name -> the vocabulary, and how text is split before it.
SPLITTERS = {
    "uncased": ("uncased_vocab.txt", {}),
    "cased": ("cased_vocab.txt", {"do_lower_case": False}),
    "korean": ("uncased_vocab.txt", {"strip_accents": False}),
    "unspaced": ("uncased_vocab.txt", {"split_cjk": False}),
}

# Theirs to ours; the others have one name.
OUTPUTS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
}


def rows(head):
    """Padded pairs of different lengths; of choices, three to a row."""
    rng = np.random.default_rng(3)
    lengths = np.array([LENGTH, 3, 7, 4, 11, 9])
    places = np.arange(LENGTH)
    mask = (places < lengths[:, None]).astype(np.int64)
    batch = {
        "input_ids": rng.integers(5, 40, mask.shape) * mask,
        "input_mask": mask,
        "segment_ids": (places >= lengths[:, None] // 2) * mask,
    }
    if head == "choice":
        batch = {key: value.reshape(2, 3, LENGTH) for key, value in batch.items()}
    return batch


def write_rows(head, folder):
    batch = rows(head)
    np.savez(
        folder / "inputs.npz",
        input_ids=batch["input_ids"],
        attention_mask=batch["input_mask"],
        token_type_ids=batch["segment_ids"],
    )


def outputs_of(model, head):
    everywhere = np.tile(np.arange(LENGTH), (6, 1))
    return model(rows(head) | {"masked_lm_positions": everywhere})


def convert(source, target, layout):
    convert_checkpoint.main(
        convert_checkpoint.Options(
            input=[str(source)], output_dir=str(target), layout=layout
        )
    )


def make_ours(head, gelu, folder):
    """A model of ours, converted; its outputs."""
    network, _, task = HEADS[head]
    config = BertConfig(**TINY, hidden_act=gelu)
    model = network(config, seed=0)
    rng = np.random.default_rng(5)
    for weights in model.weights:  # biases are 0 at first, and say nothing
        weights.assign_add(0.1 * rng.normal(size=weights.shape).astype(np.float32))
    released = folder.with_name(f"{folder.name} released")
    tensors = {weights.path: weights for weights in model.weights}
    checkpoint.save(Folder.open(str(released)), 1, tensors, keep=1)
    (released / "bert_config.json").write_text(config.to_json_string())
    (released / "task.json").write_text(json.dumps(task))
    convert(released, folder, "hugging_face")
    write_rows(head, folder)
    return {name: np.array(value) for name, value in outputs_of(model, head).items()}


def make_theirs(head, gelu, folder):
    """What transformers is to make a model of."""
    folder.mkdir()
    said = {
        "model_type": "bert",
        "architectures": [HEADS[head][1]],
        "hidden_act": GELUS[gelu],
        "num_labels": {"classes": 3, "regression": 1, "several": 4, "tags": 5}.get(
            head, 2
        ),
    }
    if head == "classes":
        said["id2label"] = {0: "no", 1: "ja", 2: "좋아요"}
        del said["num_labels"]
    (folder / "config.json").write_text(json.dumps(TINY | said))
    write_rows(head, folder)


def make_tokenizers(folder):
    """As a converted model has them."""
    config = BertConfig(**TINY | {"vocab_size": 2400})
    weights = {w.path: w for w in BertEncoder(config).weights}
    checkpoint.save(Folder.open(str(folder / "words")), 1, weights, keep=1)
    (folder / "words" / "bert_config.json").write_text(config.to_json_string())
    for name, (vocabulary, flags) in SPLITTERS.items():
        convert_checkpoint.main(
            convert_checkpoint.Options(
                input=[str(folder / "words")],
                output_dir=str(folder / name),
                layout="hugging_face",
                vocab_file=str(SPLITTING / vocabulary),
                **flags,
            )
        )


def texts():
    with open(SPLITTING / "texts.jsonl", encoding="utf-8") as file:
        return [json.loads(line)["text"] for line in file]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """All models, asked once, for torch takes long to load: (folder, our outputs)."""
    folder = tmp_path_factory.mktemp("asked")
    ours = {}
    for head, gelu in CASES:
        ours[head, gelu] = make_ours(head, gelu, folder / f"ours {head} {gelu}")
        make_theirs(head, gelu, folder / f"theirs {head} {gelu}")
    make_tokenizers(folder)
    questions = {
        "read": [f"ours {head} {gelu}" for head, gelu in CASES],
        "make": [f"theirs {head} {gelu}" for head, gelu in CASES],
        "split": list(SPLITTERS),
    }
    (folder / "questions.json").write_text(json.dumps(questions))
    (folder / "texts.json").write_text(json.dumps(texts()))
    program = ROOT / "tests" / "programs" / "ask_transformers.py"
    subprocess.run(
        [sys.executable, str(program), str(folder)],
        env=os.environ | {"HF_HUB_OFFLINE": "1"},
        check=True,
        timeout=400,
    )
    return folder, ours


def assert_same(ours, theirs, more=0.0):
    compared = 0
    for name, value in theirs.items():
        mine = ours[OUTPUTS.get(name, name)]
        assert value.shape == mine.shape
        assert np.ptp(value) > 0.1  # else anything were the same
        np.testing.assert_allclose(mine + more, value, rtol=0, atol=1e-5)
        compared += 1
    assert compared


@pytest.mark.parametrize(("head", "gelu"), CASES)
def test_they_read_what_is_written(asked, head, gelu):
    folder, ours = asked
    model = folder / f"ours {head} {gelu}"
    assert json.loads((model / "config.json").read_text())["architectures"] == [
        HEADS[head][1]
    ]
    loading = json.loads((model / "loading.json").read_text())
    # The pooler of the release has no use in these, so their classes have none.
    assert set(loading.pop("unexpected_keys")) == (
        POOLER if head in ("span", "tags") else set()
    )
    assert not any(loading.values()), loading  # nothing new, nothing of another shape
    with np.load(model / "outputs.npz") as theirs:
        assert_same(ours[head, gelu], theirs)


@pytest.mark.parametrize(("head", "gelu"), CASES)
def test_what_they_save_is_read(asked, tmp_path, head, gelu):
    folder, _ = asked
    model = folder / f"theirs {head} {gelu}"
    convert(model, tmp_path / "released", "release")
    bias = 0.0
    if head == "choice":  # of all choices the same, so that no probability has it
        bias = hugging_face.HuggingFace(str(model / "model.safetensors")).read()[
            "output_bias"
        ]
        assert bias != 0
    for source in (model, tmp_path / "released"):
        config = read_config(str(source))
        assert config.hidden_act == gelu
        ours = HEADS[head][0](config, seed=0)
        report = Source.open(str(source)).load({w.path: w for w in ours.weights})
        assert report.unused == (["output_bias"] if head == "choice" else [])
        assert [name for name in report.initial if "pooler" not in name] == []
        with np.load(model / "outputs.npz") as theirs:
            assert_same(outputs_of(ours, head), theirs, more=bias)


def test_the_two_gelus_are_told_apart(asked):
    """By far more than what the models may differ by."""
    _, ours = asked
    for head in HEADS:
        for name, value in ours[head, "gelu"].items():
            assert np.abs(value - ours[head, "gelu_erf"][name]).max() > 3e-5


@pytest.mark.parametrize(
    ("head", "problem", "labels"),
    [
        ("classes", None, ["no", "ja", "좋아요"]),
        ("regression", "regression", None),
        ("several", "multi_label_classification", list("abcd")),
        ("tags", None, ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]),
    ],
)
def test_what_outputs_mean_goes_along(asked, head, problem, labels):
    folder, _ = asked
    said = json.loads((folder / f"ours {head} gelu" / "config.json").read_text())
    assert said.get("problem_type") == problem
    names = labels and {str(i): label for i, label in enumerate(labels)}
    assert said.get("id2label") == names


def test_what_they_call_labels_is_read(asked, tmp_path):
    folder, _ = asked
    theirs = folder / "theirs classes gelu"
    convert(theirs, tmp_path / "released", "release")
    convert(tmp_path / "released", tmp_path / "again", "hugging_face")
    names = ["no", "ja", "좋아요"]
    task = hugging_face.HuggingFace(str(theirs / "model.safetensors")).task()
    assert task["label_names"] == names
    assert json.loads((tmp_path / "released" / "task.json").read_text()) == task
    said = json.loads((tmp_path / "again" / "config.json").read_text())
    assert said["id2label"] == dict(zip("012", names, strict=True))


def differs_from_ours(text, name):
    """Whether their tokenizer of this name may take a text otherwise."""
    words = text.split()
    # Only this one has a vocabulary with Hangul, and keeps accents.
    in_letters = re.search("[\u1100-\u1112][\u1161-\u1175]", text) is not None
    letters = {"Hangul in letters is not composed": in_letters}
    return (letters if name == "korean" else {}) | {
        "a special token spelled out is one to them": any(
            token in text for token in SPECIAL_TOKENS
        ),
        "words above 100 characters, not 200, are unknown": any(
            len(word) > 100 for word in words
        ),
        # What Unicode does not define, or did after their tables: U+061D came with 14,
        # U+0A76 with 11, U+0AFA with 10.
        "they drop private and undefined characters": any(
            unicodedata.category(c) in ("Co", "Cn") or c in "\u061d\u0a76\u0afa"
            for c in text
        ),
    }


@pytest.mark.parametrize("name", SPLITTERS)
def test_their_tokenizer_gives_our_ids(asked, name):
    folder, _ = asked
    vocabulary = Vocabulary.load(str(folder / name / "vocab.txt"))
    ours = WordPiece(vocabulary, **SPLITTERS[name][1])
    theirs = json.loads((folder / name / "ids.json").read_text())
    found = set()
    for text, ids in zip(texts(), theirs, strict=True):
        if ids != ours.encode(text):
            reasons = [
                why for why, is_so in differs_from_ours(text, name).items() if is_so
            ]
            assert reasons, text
            found.update(reasons)
    assert found == differs_from_ours("", name).keys()  # each of them is met


def test_the_ways_to_split_are_told_apart(asked):
    folder, _ = asked
    ids = {(folder / name / "ids.json").read_text() for name in SPLITTERS}
    assert len(ids) == len(SPLITTERS)
