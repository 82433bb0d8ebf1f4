"""Explanations: contributions add up to what they explain, and are the words' own."""

import dataclasses
import re

import numpy as np
import pytest

import run_classifier
from training.backend import tf
from errors import UserError
from serving import explanations, integrated_gradients
from serving.predictor import Predictor
from tests import (
    classifier,
    exports,
    jobs,
    ner,
    prediction,
    relatives,
    squad,
    swag,
    tiers,
    tiny,
)
from text.graphs.lookup import graph_of
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning.calibration import Calibration

# As wide weights, next to the width, as those of trained models, and rows as long.
SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "max_position_embeddings": 128,
    "initializer_range": 0.15,
    "hidden_dropout_prob": 0.0,
}
TRAINED = tiny.config(**SIZES)
MASK = SPECIAL_TOKENS.index("[MASK]")


def long_texts(words, number=6, seed=0):
    """One is empty."""
    rng = np.random.default_rng(seed)
    sizes = [*np.linspace(2, 140, number - 1).astype(int), 0]
    return [" ".join(rng.choice(words, size)) for size in sizes]


def explained(task, model, folder, **texts):
    """What the signature gives in this process."""
    explain = integrated_gradients.signature(model, task.scores_to_explain)
    texts = {name: tf.constant(value) for name, value in texts.items()}
    outputs = explain(graph_of(task.tokenizer, str(folder)), model, **texts)
    return {name: value.numpy() for name, value in outputs.items()}


def assert_complete(found, least=0.5):
    """Within one percent, or what float32 can add up."""
    sums = found["attributions"].sum(axis=-1)
    difference = found["logit"] - found["baseline_logit"]
    assert np.abs(difference).max() > least  # there is something to explain
    assert np.all(np.abs(sums - difference) <= 0.01 * np.maximum(abs(difference), 0.01))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier")
    tiny.write(folder, classifier.WORDS, TRAINED)
    return folder


def classifier_of(folder, **changes):
    own = {"text_b_column": "other", "labels": ["x", "y", "z"], "max_seq_length": 128}
    return classifier.task(
        folder, "custom", do_train=False, do_eval=True, **own | changes
    )


def logits_of(model, task, requests, masked):
    """Of the rows that the script itself makes of the texts."""
    logits = []
    for text_a, text_b in requests:
        example = run_classifier.Example(text_a, text_b, None, "")
        (row,) = task.featurize(example, "dev")
        ids = np.array(row.input_ids)
        ids = np.where(masked & (ids >= len(SPECIAL_TOKENS)), MASK, ids)[None]
        batch = {"input_ids": ids, "segment_ids": np.array(row.segment_ids)[None]}
        batch["input_mask"] = np.ones_like(ids)
        batch = {name: tf.constant(x, tf.int32) for name, x in batch.items()}
        logits.append(model(batch)["logits"][0].numpy())
    return np.array(logits)


@pytest.fixture(scope="module")
def pairs(folder):
    """A task, its network, requests and their explanations."""
    task = classifier_of(folder)
    model = task.objective().network(TRAINED, seed=3)
    first, second = (long_texts(classifier.WORDS, seed=seed) for seed in (1, 2))
    found = explained(task, model, folder, text_a=first, text_b=second[::-1])
    return task, model, list(zip(first, second[::-1], strict=True)), found


def test_contributions_add_up_to_what_the_text_adds_to_the_logit_of_its_label(pairs):
    task, model, requests, found = pairs
    assert_complete(found)
    logits = logits_of(model, task, requests, masked=False)
    np.testing.assert_allclose(found["logit"], logits.max(axis=1), rtol=1e-4)
    labels = [task.labels.names[number].encode() for number in logits.argmax(axis=1)]
    assert found["label"].tolist() == labels
    baseline = logits_of(model, task, requests, masked=True)
    of_label = baseline[range(len(labels)), logits.argmax(axis=1)]
    np.testing.assert_allclose(found["baseline_logit"], of_label, rtol=1e-4, atol=1e-5)


def test_padding_contributes_nothing_and_changes_nothing(pairs, folder):
    task, model, requests, found = pairs
    is_padding = found["starts"] < 0
    assert is_padding.any() and not found["attributions"][is_padding].any()
    alone = explained(
        task, model, folder, text_a=[requests[1][0]], text_b=[requests[1][1]]
    )
    size = alone["attributions"].shape[1]
    np.testing.assert_allclose(
        alone["attributions"][0], found["attributions"][1, :size], atol=1e-4
    )


def test_the_tokens_of_the_row_are_listed_and_none_that_were_cut_off(pairs):
    task, _, requests, found = pairs
    were_cut = 0
    for number, request in enumerate(requests):
        (row,) = task.featurize(run_classifier.Example(*request, None, ""), "dev")
        read = [id for id in row.input_ids if id >= len(SPECIAL_TOKENS)]
        columns = (found[key][number] for key in ("parts", "starts", "ends"))
        places = zip(*columns, strict=True)
        listed = [request[part][a:b] for part, a, b in places if part >= 0]
        assert listed == [task.tokenizer.vocabulary.tokens[id] for id in read]
        assert (found["tokens"][number] != b"").sum() == len(read)
        were_cut += len(read) < len(" ".join(request).split())
    assert were_cut == 4  # of six


def test_of_several_labels_the_clearest_answer_is_explained(folder):
    """And the nearest one, where none is answered."""
    task = classifier_of(folder, label_kind="several", text_b_column=None)
    cuts = (0.0, 3.0, -2.0)
    task.labels.calibration = Calibration(cuts=cuts)
    logits = tf.constant([[-1.0, 2.0, 0.0], [1.0, 2.9, -3.0], [-5.0, 2.0, -4.0]])
    scores = task.labels.scores_to_explain({}, logits, None, logits, "mean")
    assert scores.labels["label"].numpy().tolist() == [b"z", b"x", b"y"]
    answered = task.labels.serve(logits)["predicted"].numpy().tolist()
    assert answered == [[b"", b"", b"z"], [b"x", b"", b""], [b""] * 3]


def test_a_token_contributes_what_a_sum_over_many_points_says(pairs, folder):
    """An independent sum: midpoints of a thousand steps of the network itself."""
    task, model, requests, found = pairs
    table = model.encoder.word_embeddings
    (row,) = task.featurize(run_classifier.Example(*requests[0], None, ""), "dev")
    ids = tf.constant(row.input_ids, tf.int32)[None]
    segments = tf.constant(row.segment_ids, tf.int32)[None]
    places = np.flatnonzero(ids[0].numpy() >= len(SPECIAL_TOKENS))
    label = task.labels.names.index(found["label"][0].decode())
    words = table.numpy()

    @tf.function
    def slopes():
        with tf.GradientTape() as tape:
            outputs = model({"input_ids": ids, "segment_ids": segments})
            logit = outputs["logits"][0, label]
        return tape.gradient(logit, table.value)

    sums = np.zeros(words.shape[0])  # over the places of a word, which move together
    for step in range(300):
        share = (step + 0.5) / 300
        moved = words[MASK] + share * (words - words[MASK])
        moved[: len(SPECIAL_TOKENS)] = words[: len(SPECIAL_TOKENS)]
        table.assign(moved)
        sums += (slopes().numpy() * (words - words[MASK])).sum(axis=1) / 300
    table.assign(words)
    by_word = np.zeros(len(sums))
    numbers = ids[0].numpy()[places]
    np.add.at(by_word, numbers, found["attributions"][0, : len(places)])
    used = np.unique(numbers)
    np.testing.assert_allclose(by_word[used], sums[used], atol=0.01 * abs(sums).max())


@pytest.mark.exhaustive
@pytest.mark.parametrize("pooling", ["mean", "max", "first"])
def test_windows_of_a_long_text_contribute_as_they_are_pooled(folder, pooling):
    task = classifier_of(
        folder,
        text_b_column=None,
        max_seq_length=32,
        doc_stride=20,
        window_pooling=pooling,
    )
    model = task.objective().network(TRAINED, seed=3)
    found = explained(task, model, folder, text=long_texts(classifier.WORDS))
    assert_complete(found)
    beyond = found["starts"] > 300  # of these tokens, the first window has none
    assert found["attributions"][beyond].any() == (pooling != "first")


def test_words_of_a_text_have_what_their_tokens_contribute():
    text = "Don't go, 東京 naïve\u0308!"
    starts = np.array([0, 3, 4, 6, 8, 10, 11, 13, 19])
    ends = np.array([3, 4, 5, 8, 9, 11, 12, 19, 20])
    words = explanations.words_of(text, starts, ends, np.arange(9.0) + 1)
    assert [(word["text"], word["contribution"]) for word in words] == [
        *(("Don't", 6.0), ("go", 4.0), (",", 5.0), ("東", 6.0), ("京", 7.0)),
        *(("naïve\u0308", 8.0), ("!", 9.0)),
    ]
    assert all(text[word["start"] : word["end"]] == word["text"] for word in words)
    (joined,) = explanations.words_of("東京", *np.array([[0], [2]]), np.ones(1))
    assert joined["text"] == "東京"  # one token
    assert explanations.words_of("", *np.zeros((2, 0), int), np.ones(0)) == []


# --- Spans and tags ------------------------------------------------------------------


@pytest.mark.exhaustive
@pytest.mark.parametrize("version_2", [False, True])
def test_contributions_add_up_to_start_and_end_of_an_answer(tmp_path, version_2):
    """Of the answer that is served, in the window it is from, or of none."""
    squad.write_files(tmp_path)
    flags = squad.flags(
        tmp_path,
        **{"max_seq_length": 64, "doc_stride": 24, "do_predict": True},
        version_2_with_negative=version_2,
    )
    run = squad.run_squad
    tokenizer = WordPiece(Vocabulary.load(str(tmp_path / "vocab.txt")))
    task = run.Squad(run.Options(**flags), tokenizer)
    config = dataclasses.replace(TRAINED, vocab_size=squad.TINY.vocab_size)
    model = task.objective().network(config, seed=5)
    contexts = long_texts(squad.WORDS[4:])
    texts = {"question": ["what shines?"] * len(contexts), "context": contexts}

    def serve():
        tensors = {name: tf.constant(value) for name, value in texts.items()}
        outputs = task.serve(graph_of(tokenizer, str(tmp_path)), model, **tensors)
        return {name: value.numpy() for name, value in outputs.items()}

    served = serve()
    if version_2:  # half of the texts have an answer then
        threshold = float(np.median(served["null_odds"]))
        task.flags = dataclasses.replace(
            task.flags, null_score_diff_threshold=threshold
        )
        served = serve()
        assert 1 < np.sum(served["answer"] == b"") < len(contexts) - 1
    found = explained(task, model, tmp_path, **texts)
    assert_complete(found)
    np.testing.assert_allclose(found["logit"], served["score"], rtol=1e-3, atol=1e-4)
    assert set(np.unique(found["parts"])) == {-1, 0, 1}


@pytest.mark.exhaustive
@pytest.mark.parametrize("in_context", [False, True])
def test_words_contribute_to_the_tags_of_each_other(tmp_path, in_context):
    config = dataclasses.replace(ner.TINY, **SIZES)
    ner.write_files(tmp_path, config)
    task = ner.task_of(
        tmp_path, entity_types=["PER", "LOC"], document_context=in_context
    )
    model = task.objective().network(config, seed=5)
    words = [["Pab", "Lb", "bab", "", "."], ["Lbbab", "Pa", "b", "Lab", ""]]
    context = {"before": ["Pa b", ""], "after": ["", "La ba"]} if in_context else {}
    found = explained(task, model, tmp_path, words=words, **context)
    assert_complete(found)
    is_explained = found["label"] != b""
    assert is_explained.any() and not is_explained[np.array(words) == ""].any()
    assert not found["attributions"][~is_explained].any()
    served = task.serve(
        graph_of(task.tokenizer, str(tmp_path)),
        model,
        tf.constant(words),
        **{name: tf.constant(value) for name, value in context.items()},
    )
    assert (is_explained == ~np.isin(served["tags"].numpy(), [b"O", b""])).all()
    assert found["attributions"][..., -1].any() == in_context


# --- Relatives -----------------------------------------------------------------------


@pytest.mark.parametrize("name", tiers.cases(relatives.CONFIGS, ["modern_bert"]))
def test_every_relative_looks_its_words_up_where_they_can_be_moved(tmp_path, name):
    tiny.write(tmp_path, classifier.WORDS, TRAINED)
    task = classifier_of(tmp_path, text_b_column=None, max_seq_length=16)
    size = len(task.tokenizer.vocabulary)
    config = dataclasses.replace(relatives.CONFIGS[name], vocab_size=size)
    model = task.objective().network(config, seed=3)
    for variable in model.weights:
        if len(variable.shape) > 1 and np.std(variable) < 0.05:
            variable.assign(
                8 * variable
            )  # next to the width, it is that of trained ones
    found = explained(
        task, model, tmp_path, text=long_texts(classifier.WORDS, number=3)
    )
    assert_complete(found, least=0.02)


# --- Through the programs ------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(every_export_is_checked, tmp_path_factory):
    """An export that explains, of a few updates; and the page of its evaluation."""
    folder = tmp_path_factory.mktemp("exported")
    tiny.write(folder, classifier.WORDS, classifier.TINY)
    files = classifier.custom(folder, "tsv", ["x", "y"])
    with jobs.untraced():
        classifier.run(
            folder,
            "custom",
            **files,
            do_train=True,
            do_eval=True,
            do_export=True,
            export_attributions=True,
            explain_mistakes=2,
        )
    return folder / "output"


@pytest.mark.exhaustive
def test_predict_explains_each_row_by_words_of_the_users_own_text(
    exported, capsysbinary, monkeypatch
):
    ask = prediction.asker(lambda form: str(exported), capsysbinary, monkeypatch)
    lines = b"The CAT,  sat\n\nred hat\n"
    rows = ask("label", lines, explain=True, batch_size=2)
    words = rows[0]["explanation"]["words"]
    assert [word["text"] for word in words] == ["The", "CAT", ",", "sat"]
    assert words[3] | {"contribution": 0} == {
        "part": "text",
        "text": "sat",
        "start": 10,
        "end": 13,
        "contribution": 0,
    }
    for row in rows:
        found = row["explanation"]
        assert found["label"] == row["predicted"]
        total = sum(word["contribution"] for word in found["words"])
        difference = found["logit"] - found["baseline_logit"]
        assert total == pytest.approx(difference, rel=0.01, abs=1e-4)
    plain = ask("label", lines)
    assert plain == [
        {k: v for k, v in row.items() if k != "explanation"} for row in rows
    ]


@pytest.mark.exhaustive
def test_mistakes_show_what_words_contributed(exported):
    page = (exported / "mistakes.html").read_text()
    assert page.count('<span title="') > 2
    assert "Blue words speak for what was predicted" in page


@pytest.mark.exhaustive
def test_mistakes_in_answers_show_what_words_contributed(tmp_path):
    """Of the question and of the context, in the order of the request."""
    squad.write_files(tmp_path)
    flags = dict.fromkeys(("do_train", "do_eval"), True)
    with jobs.untraced():
        squad.run(tmp_path, **flags, learning_rate=[1e-6], explain_mistakes=2)
    page = (tmp_path / "output" / "mistakes.html").read_text()
    explained = re.findall(r'(?:<span title="[^"]*"[^>]*>[^<]*</span>\s*){3,}', page)
    assert len(explained) == 2
    assert all("what" in re.sub("<[^>]*>", "", text) for text in explained)


def test_a_model_without_explanations_is_refused_before_it_is_loaded(
    tmp_path, monkeypatch
):
    folder = exports.write(tmp_path, "label")
    monkeypatch.setattr("serving.predictor._load", None)
    with pytest.raises(UserError, match="again with --do_export --export_attributions"):
        Predictor(folder, explains=True)


@pytest.mark.parametrize("form", ["masks", "choice", "vector"])
def test_a_model_that_cannot_be_explained_is_not_to_be_exported_again(tmp_path, form):
    folder = exports.write(tmp_path, form)
    message = (
        "answers of this model cannot be explained; docs/explanations.md says which"
    )
    with pytest.raises(UserError, match=message) as refused:
        Predictor(folder, explains=True)
    assert "--export_attributions" not in str(refused.value)


def test_what_cannot_be_explained_is_refused(folder):
    with pytest.raises(UserError, match="--export_attributions has no effect"):
        classifier.options(folder, "custom", do_eval=True, export_attributions=True)
    with pytest.raises(UserError, match="--export_precision"):
        classifier.options(
            folder,
            "custom",
            do_export=True,
            export_attributions=True,
            export_precision="int8",
        )


@pytest.mark.parametrize("name", ["export_attributions", "explain_mistakes"])
def test_script_whose_answers_cannot_be_explained_is_named(tmp_path, name):
    swag.write_files(tmp_path)
    given = {"do_eval": True, "do_export": True, name: 1}
    with pytest.raises(
        UserError, match=f"--{name}: the answers .* of run_swag.py cannot"
    ):
        swag.run(tmp_path, **given)
