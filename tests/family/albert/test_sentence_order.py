"""Records of swapped spans: what every program makes of them, and which objective fits."""

import dataclasses
import itertools
import json
import random
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import inspect_records
import run_pretraining
import tests
from errors import UserError
from family.albert.encoder import AlbertConfig
from family.albert.sentence_order import MaskedLMSentenceOrder
from modeling import losses
from modeling.objectives.sentence_pairs import MaskedLMNextSentence
from tests import records as records_of
from tests import reference_pairs
from tests.family.albert.test_albert_encoder import golden, read_config
from tests.pretraining import flags, results, run_twice
from text.inspection.inspector import first_broken
from text.inspection.table import make_inspector
from text.instances import pairs
from text.instances.table import RowOptions
from text.records import encoding, framing
from text.tokenizers.vocabulary import Vocabulary

GOLDEN = tests.GOLDEN / "albert" / "data"
CONFIG = AlbertConfig(
    vocab_size=3000,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
RELEASED = str(GOLDEN / "records.tfrecord")
SMALL_VOCAB = str(tests.GOLDEN / "checkpoint" / "vocab.txt")

TEXT = "\n\n".join(
    "\n".join(f"the {n} of document {d} says that it is so ." for n in range(2 + d % 7))
    for d in range(60)
)


def make_records(folder, **changes):
    folder.mkdir(exist_ok=True)
    given = {"instances": "sentence_order", "text": TEXT + "\n\nalone ."}
    return records_of.make_records(folder, **given | changes)


def inspect(records, capsys, **changes):
    given = {"input_file": [records], "vocab_file": SMALL_VOCAB} | changes
    status = inspect_records.main(inspect_records.Options(**given))
    return status, capsys.readouterr().out


def test_records_have_the_release_s_features(tmp_path):
    facts = json.loads((GOLDEN / "facts.json").read_text())["record_schema"]
    instances = RowOptions(instances="sentence_order").make_instances()
    kinds = {"int64": "int64_list", "float32": "float_list"}
    assert facts == {
        feature.name: {"kind": kinds[feature.dtype], "length": feature.length}
        for feature in instances.schema()
    }
    make_records(tmp_path)
    example = next(framing.read(f"{tmp_path}/records-00000-of-00002"))
    assert [f.name for f in encoding.schema_of(example)] == sorted(facts)


def test_the_release_s_rows_keep_the_rules():
    """Of its tokenizer for vocab.txt, with boundaries of words and n-grams."""
    facts = json.loads((GOLDEN / "facts.json").read_text())["vocab_default"]
    vocabulary = Vocabulary.load(str(tests.ROOT / "vocab" / "vocab.txt"))
    recipe = RowOptions.of_release(lambda rows: rows.sentence_task == "sentence_order")
    instances = recipe.make_instances()
    rows = [_row(example, vocabulary) for example in facts["examples"]]
    examples = encoding.encode(
        {name: np.stack([row[name] for row in rows]) for name in rows[0]},
        instances.schema(),
    )
    batch, faults = encoding.decode(examples, instances.schema())
    inspector = make_inspector(recipe, vocabulary)
    text = inspector.masks.unmask(batch)
    assert not faults
    assert not first_broken(batch, text, inspector)
    batch["token_boundary"][1, 3] ^= 1
    ((rule, line),) = first_broken(batch, text, inspector).values()
    assert rule.startswith("token_boundary must be 1 at") and "[3] is" in line


def _row(example, vocabulary):
    def padded(values, length):
        return np.array([*values, *[0] * (length - len(values))])

    ids = [vocabulary.ids[token] for token in example["tokens"]]
    labels = [vocabulary.ids[token] for token in example["masked_lm_labels"]]
    return {
        "input_ids": padded(ids, 128),
        "input_mask": padded([1] * len(ids), 128),
        "segment_ids": padded(example["segment_ids"], 128),
        "token_boundary": padded(example["token_boundary"], 128),
        "masked_lm_positions": padded(example["masked_lm_positions"], 20),
        "masked_lm_ids": padded(labels, 20),
        "masked_lm_weights": padded([1.0] * len(labels), 20),
        "next_sentence_labels": np.array([int(example["is_random_next"])]),
    }


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"do_whole_word_mask": True, "ngram": 3},
        {"masking": "dynamic", "do_whole_word_mask": True, "ngram": 3},
    ],
)
def test_records_are_sound_and_shown(tmp_path, capsys, changes):
    records = make_records(tmp_path, **changes)
    said = capsys.readouterr().out
    assert re.search(r"\d\d\.\d% labeled as swapped", said)
    assert re.search(r"\n\d+ sentences at the end of a document had no next", said)
    status, shown = inspect(records, capsys, report_file=str(tmp_path / "report.html"))
    assert status == 0 and "no problems found" in shown
    assert re.search(r"Sentence order: \d\d\.\d% swapped", shown)
    assert "; A and B are in order" in shown or "; A and B are swapped" in shown
    assert "Are A and B in order?" in (tmp_path / "report.html").read_text()
    assert "random text" not in shown and "next sentence" not in shown.lower()


def test_records_without_a_description_are_known_by_their_features(tmp_path, capsys):
    records = make_records(tmp_path)
    (description,) = tmp_path.glob("*.description.json")
    description.unlink()
    status, shown = inspect(records, capsys)
    assert status == 0 and "Sentence order:" in shown


def test_labels_that_are_not_balanced_are_told(tmp_path, capsys, monkeypatch):
    plan = pairs.plan
    monkeypatch.setattr(
        pairs, "plan", lambda *a, **named: plan(*a, **named | {"swapped_share": 0.9})
    )
    status, shown = inspect(make_records(tmp_path, dupe_factor=9), capsys)
    assert status == 1 and "half of the pairs must be swapped" in shown


def test_one_document_will_do(tmp_path):
    (tmp_path / "one.txt").write_text("one .\ntwo .\nthree .")
    make_records(
        tmp_path,
        input_file=[str(tmp_path / "one.txt")],
        output_file=[str(tmp_path / "records-0")],
        dupe_factor=1,
    )


# --- Which objective learns them -----------------------------------------------------


def train(folder, records, **changes):
    given = {"input_file": [records], "objective": "masked_lm_sentence_order"}
    options = flags(folder, **given | changes)
    run_pretraining.main(run_pretraining.Options(**options))


ORDER, NEXT = "masked_lm_sentence_order", "masked_lm_next_sentence"


@pytest.mark.parametrize("masking", ["static", "dynamic"])
@pytest.mark.parametrize(
    ("kind", "objective", "message"),
    [
        (
            "pairs",
            ORDER,
            r"records-00000-of-00002: these records \(pairs\) have no sentence_order "
            f"labels, which --objective={ORDER} needs; use --objective={NEXT} or "
            "masked_lm, or other records",
        ),
        (
            "sentence_order",
            NEXT,
            r"these records \(sentence_order\) have no next_sentence labels, which "
            f"--objective={NEXT} needs; use --objective=masked_lm or {ORDER}, or other",
        ),
        ("doc_sentences", ORDER, r"records \(doc_sentences\) have no"),
    ],
)
def test_labels_of_another_meaning_are_refused(
    tmp_path, masking, kind, objective, message
):
    passes = 1 if (kind, masking) == ("doc_sentences", "dynamic") else 2
    records = make_records(
        tmp_path, instances=kind, masking=masking, dupe_factor=passes
    )
    if masking == "dynamic":
        message = message.replace("masked_lm or", "(masked_lm or|masked_lm or next_t)")
        message = message.partition("; use")[0]
    with pytest.raises(UserError, match=message):
        train(tmp_path, records, objective=objective)
    assert not (tmp_path / "output").exists()


def test_berts_records_without_a_description_are_not_about_order(tmp_path):
    config = dataclasses.replace(CONFIG, vocab_size=3000, max_position_embeddings=64)
    given = flags(tmp_path, config, objective="masked_lm_sentence_order")
    with pytest.raises(UserError, match="no description, and no token_boundary as"):
        run_pretraining.main(run_pretraining.Options(**given))


def test_labels_of_two_meanings_are_not_mixed(tmp_path):
    order = make_records(tmp_path / "order", masking="dynamic")
    follows = make_records(tmp_path / "next", masking="dynamic", instances="pairs")
    with pytest.raises(
        UserError, match="contains pairs with dynamic masks, but .* sentence_order with"
    ):
        train(tmp_path, order, eval_input_file=[follows])


@pytest.mark.exhaustive
def test_a_model_learns_from_them(tmp_path, untraced):
    masks = {"masking": "dynamic", "do_whole_word_mask": True, "ngram": 3}
    records = make_records(tmp_path, **masks)
    train(tmp_path, records, do_eval=True, max_eval_steps=4)
    found = results(tmp_path)
    assert list(found) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "sentence_order_accuracy",
        "sentence_order_loss",
    ]
    assert float(found["sentence_order_loss"]) < 1


@pytest.mark.exhaustive
def test_a_killed_run_with_lamb_ends_alike(tmp_path, untraced, capsys):
    records = make_records(tmp_path, masking="dynamic", dupe_factor=1)
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    given = {
        "config": dataclasses.replace(CONFIG, **rates),
        "objective": ORDER,
        "input_file": [records],
        "optimizer": "lamb",
        "num_train_steps": 3,
        "save_checkpoints_steps": 2,
    }
    expected = run_twice(tmp_path, capsys, **given)
    of_layers = [name for name in expected if "/transformer/" in name]
    assert len(of_layers) == 3 * 16  # both layers' weights are one, with their slots
    assert all("/group_0/inner_group_0/" in name for name in of_layers)


@pytest.mark.parametrize("objective", [ORDER, NEXT, "masked_lm"])
def test_a_model_learns_from_the_release_s_records(tmp_path, untraced, objective):
    """They have no description, so the objective says what their labels are about."""
    sizes = {"max_seq_length": 128, "max_predictions_per_seq": 20, "num_train_steps": 2}
    config = dataclasses.replace(CONFIG, max_position_embeddings=128)
    train(tmp_path, RELEASED, config=config, objective=objective, **sizes)
    assert (tmp_path / "output" / "model.ckpt-2.index").exists()


# Masked words and sentence order: the release's losses, and next sentences' network.


OBJECTIVE = MaskedLMSentenceOrder()


@pytest.mark.parametrize("name", ["base", "groups", "same_width"])
def test_losses_equal_the_release(name):
    batch, expected = golden("inputs.npz"), golden(f"{name}/outputs.npz")
    model = OBJECTIVE.network(read_config(name))
    weights = golden(f"{name}/weights.npz")
    for variable in model.weights:
        variable.assign(weights[variable.path])
    outputs = model(batch)
    found = OBJECTIVE.losses(batch, outputs)
    assert found.keys() == OBJECTIVE.loss_weights.keys()
    for loss, pair in found.items():
        np.testing.assert_allclose(losses.mean(*pair), expected[loss], rtol=1e-5)
    log_probs = expected["sentence_order_log_probs"]
    found = OBJECTIVE.metrics(batch, outputs)
    assert set(found) == set(OBJECTIVE.metric_names)
    right = log_probs.argmax(axis=1) == batch["next_sentence_labels"][:, 0]
    assert float(losses.mean(*found["sentence_order_accuracy"])) == pytest.approx(
        right.mean(), rel=1e-4
    )


def test_its_network_is_that_of_next_sentences():
    config = read_config("base")
    order, follows = (
        objective.network(config, seed=3)
        for objective in (OBJECTIVE, MaskedLMNextSentence())
    )
    assert [v.path for v in order.weights] == [v.path for v in follows.weights]
    assert "cls/seq_relationship/output_weights" in [v.path for v in order.weights]
    for one, other in zip(order.weights, follows.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    features = MaskedLMNextSentence.needs.features
    assert OBJECTIVE.needs.features == features


# Sentence order: which spans are paired, which are swapped, and how they are cut.


NUM_SEEDS = 40


class _Corpus:
    def __init__(self, sentences, documents):
        self.sentences, self.documents = sentences, documents


VOCABULARY = Vocabulary(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def plan(arrays, seed, *, max_num_tokens=20, short_seq_prob=0.1, **recipe):
    instances = RowOptions(
        instances="sentence_order",
        max_seq_length=max_num_tokens + 3,
        short_seq_prob=short_seq_prob,
        **recipe,
    ).make_instances()
    rng = np.random.default_rng(seed)
    last = len(arrays[1]) - 1
    return instances.plan(_Corpus(*arrays), 0, last, VOCABULARY, rng)


CORPORA = st.lists(
    st.lists(st.integers(1, 12), min_size=1, max_size=12), min_size=1, max_size=5
)


@given(
    CORPORA, st.integers(5, 30), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 99)
)
def test_every_pair_is_consecutive(flat, documents, max_num_tokens, short, seed):
    arrays = flat(documents)
    planned, counts = plan(
        arrays, seed, max_num_tokens=max_num_tokens, short_seq_prob=short
    )
    sentences, ends = (values[0 : len(values)].tolist() for values in arrays)
    used = 0
    for a_start, b_start, a_length, b_length, is_swapped in planned.tolist():
        assert a_length >= 1 and b_length >= 1
        assert a_length + b_length <= max_num_tokens
        first, last = (a_start, a_length), (b_start, b_length)
        if is_swapped:
            first, last = last, first
        assert sum(first) <= last[0]
        document = next(
            d for d, end in enumerate(ends[1:]) if first[0] < sentences[end]
        )
        assert sum(last) <= sentences[ends[document + 1]]
        if a_length + b_length < max_num_tokens:  # nothing was cut
            assert sum(first) == last[0] in sentences
        used += a_length + b_length
    # What is not used was counted.
    assert counts["random_next"] == 0
    assert counts["swapped"] == planned["is_random"].sum()
    lone = counts["unpaired_sentences"]
    left_out = sentences[-1] - used - counts["truncated_tokens"]
    assert lone <= left_out <= 12 * lone
    assert lone >= sum(len(document) == 1 for document in documents)


def test_half_of_the_pairs_are_swapped(flat):
    planned, _ = plan(flat([[5] * 40_000]), 0)
    share = planned["is_random"].mean()
    assert len(planned) > 9000 and abs(share - 0.5) < 2.5 / np.sqrt(len(planned))


def test_lengths_do_not_tell_which_pairs_are_swapped(flat):
    # Long sentences: every pair is cut to ten tokens and nine, the shown first is longer.
    planned, _ = plan(flat([[30] * 400]), 0, max_num_tokens=19, short_seq_prob=0.0)
    assert 60 < planned["is_random"].sum() < 140
    assert (planned["a_length"] == 10).all() and (planned["b_length"] == 9).all()


def oracle(documents, seed):
    """The release's pairs, straight and slow: lengths, label, whether a comes first.

    But a chunk has two sentences at least, and a lone last one is left out.

    Source: google-research/albert@b772393 create_pretraining_data.py:255-386, retold.
    """
    rng = random.Random(seed)
    token = itertools.count()
    documents = [[[next(token) for _ in range(n)] for n in d] for d in documents]
    for document in documents:
        target = rng.randint(2, 61) if rng.random() < 0.3 else 61
        chunk = []
        for number, sentence in enumerate(document, 1):
            chunk.append(sentence)
            is_short = sum(map(len, chunk)) < target or len(chunk) < 2
            if is_short and number < len(document):
                continue
            if len(chunk) < 2:
                continue
            a_end = rng.randint(1, len(chunk) - 1)
            a, b = sum(chunk[:a_end], []), sum(chunk[a_end:], [])
            label = rng.random() < 0.5
            if label:
                a, b = b, a
            a, b, _ = reference_pairs._cut(reference_pairs.Pair(a, b, label), 61, rng)
            yield len(a), len(b), label, not label
            chunk = []


def statistics(made):
    """Of the pairs of one pass."""
    a, b, label, in_order = np.array(list(made), int).T
    return {
        "pairs": len(a),
        "labels": label.mean(),
        "in order, 0": in_order[label == 0].mean(),
        "in order, 1": in_order[label == 1].mean(),
        "a": a.mean(),
        "b": b.mean(),
        "difference, 0": (a - b)[label == 0].mean(),
        "difference, 1": (a - b)[label == 1].mean(),
        "b is one longer, 1": (b - a == 1)[label == 1].mean(),
        "spread": (a - b).std(),
        "full": ((a + b) == 61).mean(),
    }


def oracle_statistics(documents):
    for seed in range(NUM_SEEDS):
        yield statistics(oracle(documents, seed))


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(3)
    return [
        np.minimum(rng.geometric(0.06, rng.integers(1, 30)), 80).tolist()
        for _ in range(60)
    ]


@pytest.fixture(scope="module")
def ours(flat, documents):
    arrays = flat(documents)
    found = []
    for seed in range(NUM_SEEDS):
        planned, counts = plan(arrays, seed, max_num_tokens=61, short_seq_prob=0.3)
        assert counts["random_next"] == 0
        assert counts["swapped"] == planned["is_random"].sum()
        in_order = planned["a_start"] < planned["b_start"]
        columns = planned["a_length"], planned["b_length"], planned["is_random"]
        found.append(statistics(zip(*columns, in_order, strict=True)))
    return found


def test_the_pairs_are_the_release_s(ours, documents):
    name, distance = reference_pairs.furthest(ours, oracle_statistics(documents))
    assert distance < 4, name
