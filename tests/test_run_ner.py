"""run_ner.py as a user meets it: files, words of any kind, numbers, refusals, a kill."""

import contextlib
import dataclasses
import gzip
import io
import json
import os
import pathlib
import random
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import run_ner
import tests
from training import checkpoint
from modeling import layers
from modeling.bilstm import BiLstm
from modeling.encoders.bert import BertEncoder
from modeling.objectives import frozen_tagging
from serving import predictor
from tests import forked, jobs, numpy_lstm, served, tiny
from tests.jobs import results
from tests.text.tasks.test_tags import conlleval
from text.errors import UserError
from text.tasks import tags
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece

PIECES = [*"abPpLl.", *(f"##{letter}" for letter in "ab")]
VOCABULARY = [*SPECIAL_TOKENS, *PIECES]
TINY = tiny.config(vocab_size=len(VOCABULARY))
DEEP = dataclasses.replace(TINY, num_hidden_layers=4)


def sentence(rng):
    """Words and IOB2 tags: the first letter of a word tells its tag."""
    words, marks = [], []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(["PER", "LOC", None])
        for i in range(rng.randint(1, 2)):
            first = {"PER": "Pp", "LOC": "Ll", None: "bb"}[kind][i]
            words.append(first + "".join(rng.choices("ab", k=rng.randint(0, 3))))
            marks.append(f"{'I' if i else 'B'}-{kind}" if kind else "O")
    return [*words, "."], [*marks, "O"]


def conll(count, seed, scheme="iob1"):
    """A file of two documents, with four columns as CoNLL-2003's."""
    rng = random.Random(seed)
    lines = []
    for number in range(count):
        if number in (0, count // 2):
            lines += ["-DOCSTART- -X- -X- O", ""]
        words, marks = sentence(rng)
        marks = tags.mark(tags.entities(marks), len(marks), scheme)
        pairs = zip(words, marks, strict=True)
        lines += [*(f"{word} NN B-NP {mark}" for word, mark in pairs), ""]
    return "".join(f"{line}\n" for line in lines)


def write_files(folder, config=TINY):
    """The three files, a vocabulary and a config."""
    for split, count, seed in (("train", 48, 1), ("dev", 20, 2), ("test", 10, 3)):
        (folder / f"{split}.txt").write_text(conll(count, seed))
    tiny.write(folder, PIECES, config)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def save_encoder(folder, config=TINY):
    encoder = BertEncoder(config, seed=5)
    weights = {variable.path: variable.numpy() for variable in encoder.variables}
    checkpoint.save(str(folder / "encoder"), 1, weights, keep=1)
    return weights


def flags(folder, **changes):
    own = {
        "data_dir": str(folder),
        "do_lower_case": False,
        "max_seq_length": 40,
        "learning_rate": [1e-2],
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_ner, flags(folder, **changes))


WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}


def run_whole(folder, **changes):
    """Does all that a run can do; what it says goes to said.txt."""
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run(folder, **WHOLE, **changes)
    (folder / "said.txt").write_text(said.getvalue())
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder after a whole run."""
    folder = write_files(tmp_path_factory.mktemp("plain_run"))
    return run_whole(folder, num_train_epochs=[4.0])


@pytest.fixture(scope="module")
def in_context(tmp_path_factory):
    """The same with rows filled with other sentences; dev.txt names no documents."""
    folder = write_files(tmp_path_factory.mktemp("in_context_run"))
    text = (folder / "dev.txt").read_text().replace("-DOCSTART- -X- -X- O\n", "")
    (folder / "dev.txt").write_text(text)
    changes = {"document_context": True, "tag_scheme": "iobes"}
    return run_whole(folder, num_train_epochs=[8.0], **changes)


TWO_LAYERS = dataclasses.replace(TINY, num_hidden_layers=2)
FROZEN = {
    "features": "weighted_sum_all",
    "lstm_size": 12,
    "num_train_epochs": [10.0],
    "save_checkpoints_steps": 10,
    "log_every_steps": 5,
}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """The same with features of an encoder that does not change."""
    folder = write_files(tmp_path_factory.mktemp("frozen_run"), TWO_LAYERS)
    save_encoder(folder, TWO_LAYERS)
    return run_whole(folder, init_checkpoint=str(folder / "encoder"), **FROZEN)


def task_of(folder, **changes):
    given = run_ner.Options(**flags(folder, do_eval=True, **changes))
    vocabulary = Vocabulary.load(given.vocab_file)
    return run_ner.Tagger(given, WordPiece(vocabulary, do_lower_case=False))


# --- Runs ----------------------------------------------------------------------------


@pytest.mark.slow
def test_from_training_to_tags_beside_the_words(plain):
    output = plain / "output"
    assert {path.name for path in output.iterdir()} >= {
        "bert_config.json",
        "eval_results.txt",
        "mistakes.html",
        "model.ckpt-24.index",  # 48 / 8 * 4
        "predictions.txt",
        "task.json",
    }
    found = results(plain)
    names = [
        f"{score}{kind}"
        for score in ("f1", "precision", "recall")
        for kind in ("", "_LOC", "_PER")
    ]
    assert set(found) == {
        *(f"eval_{name}" for name in (*names, "accuracy", "loss")),
        "global_step",
        "loss",
    }
    assert found["eval_f1"] > 0.9
    before = (plain / "test.txt").read_text().splitlines()
    after = (output / "predictions.txt").read_text().splitlines()
    assert len(before) == len(after)
    right = 0
    for old, new in zip(before, after, strict=True):
        assert new == old or (
            new.startswith(f"{old} ") and tags.is_tag(new.split()[-1])
        )
        right += new == f"{old} {old.split(' ')[-1]}"
    assert right > 0.9 * sum(bool(line) for line in before)
    state = json.loads((output / "task.json").read_text())
    assert state["entity_types"] == ["LOC", "PER"]
    assert state["tag_scheme"] == "iob1"
    assert "train: 48 examples, 48 rows\n" in (plain / "said.txt").read_text()


def encoder_of(weights):
    encoder = BertEncoder(TINY)
    for variable in encoder.variables:
        variable.assign(weights[variable.path])
    return encoder


def by_hand(encoder, weights, words):
    """Tags of a sentence from the encoder alone."""
    pieces, firsts = ["[CLS]"], []
    for word in words:
        firsts.append(len(pieces))
        pieces += [word[0], *(f"##{letter}" for letter in word[1:])]
    ids = [VOCABULARY.index(piece) for piece in [*pieces, "[SEP]"]]
    hidden = np.array(encoder({"input_ids": np.array([ids])})["sequence_output"])[0]
    logits = hidden[firsts] @ weights["output_weights"].T + weights["output_bias"]
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    return [labels[n] for n in logits.argmax(axis=1)]


@pytest.mark.slow
def test_numbers_are_those_of_the_encoder_and_of_conlleval(folder):
    # Hardly trained it errs, and its tags are often broken.
    run(
        folder,
        do_train=True,
        do_eval=True,
        do_predict=True,
        test_file="dev.txt",
        num_train_epochs=[0.9],
        learning_rate=[1e-9],
    )
    lines = (folder / "output" / "predictions.txt").read_text().split("\n\n")
    weights = jobs.weights(folder)
    encoder, pairs = encoder_of(weights), []
    for block in lines:
        columns = [line.split() for line in block.strip().split("\n")]
        if len(columns[0]) == 5 and columns[0][0] != "-DOCSTART-":
            words, gold, predicted = ([c[i] for c in columns] for i in (0, 3, 4))
            expected = tags.entities(by_hand(encoder, weights, words))
            assert tags.mark(expected, len(words), "iob1") == predicted
            pairs.append(list(zip(gold, predicted, strict=True)))
    assert len(pairs) == 20
    gold, predicted, right = conlleval(pairs)
    found = results(folder)
    assert 0 < right < gold
    assert found["eval_precision"] == pytest.approx(right / predicted)
    assert found["eval_recall"] == pytest.approx(right / gold)
    assert found["eval_f1"] == pytest.approx(2 * right / (gold + predicted))
    same = [a == b for block in pairs for a, b in block]
    assert found["eval_accuracy"] == pytest.approx(np.mean(same))
    page = (folder / "output" / "mistakes.html").read_text()
    assert "no entity" in page and "[L" in page and "<th>probabilities</th>" in page


@pytest.mark.slow
def test_evaluation_alone_knows_types_and_scheme(plain, tmp_path):
    folder = shutil.copytree(plain, tmp_path / "copy")
    trained = results(folder)
    (folder / "train.txt").unlink()
    run(folder, do_eval=True, do_predict=True)
    assert results(folder) == trained
    with pytest.raises(UserError, match="--entity_types is PER,LOC, but the model was"):
        run(folder, do_eval=True, entity_types=["PER", "LOC"])
    for changes, message in (
        ({"document_context": True}, "--document_context is True, but .* with False"),
        (
            {"features": "last"},
            "--features is last, but the model was trained with none",
        ),
    ):
        with pytest.raises(UserError, match=message):
            run(folder, do_eval=True, **changes)
    # Tags of another scheme say the same.
    for scheme in tags.SCHEMES:
        (folder / "dev.txt").write_text(conll(20, 2, scheme))
        run(folder, do_eval=True)
        assert results(folder) == trained
    # So it is elsewhere, with this model; and of the test set, words are enough.
    words = "".join(f"{line.split(' ')[0]}\n" for line in conll(3, 4).splitlines())
    (folder / "test.txt").write_text(words)
    elsewhere = {
        "do_predict": True,
        "init_checkpoint": str(folder / "output"),
        "output_dir": str(folder / "elsewhere"),
    }
    run(folder, **elsewhere)
    after = (folder / "elsewhere" / "predictions.txt").read_text().splitlines()
    assert [line.split(" ")[0] for line in after] == words.splitlines()
    assert all(len(line.split(" ")) == 2 for line in after if line)


@pytest.mark.slow
def test_columns_prefixes_and_broken_tags(folder, capsys):
    """As WikiANN's files, but the other way round and with a tag against IOB2."""
    text = "B-PER\tx\ten:Pa\nI-PER\tx\ten:Pb\nO\tx\ten:.\n\n"
    (folder / "train.txt").write_text(text * 8 + "I-LOC\tx\ten:L\n")
    (folder / "dev.txt").write_text(text + "\ufeff")
    (folder / "test.txt").write_text("O\tx\ten:Pa\r\n\t\nO\tx\ten:\r\n")
    columns = {"word_column": -1, "tag_column": 0, "word_prefix": "en:"}
    run(folder, do_train=True, do_eval=True, do_predict=True, **columns)
    printed = capsys.readouterr().out
    assert (
        f"1 tag(s) break the rules of iob2, the first in {folder}/train.txt:33"
        in printed
    )
    after = (folder / "output" / "predictions.txt").read_bytes().split(b"\n")
    before = (folder / "test.txt").read_bytes().split(b"\n")
    words = [line.removesuffix(b"\r").rpartition(b"\t")[0] for line in after]
    assert words == [b"O\tx\ten:Pa", b"", b"O\tx\ten:", b""]
    assert after[1] == before[1]
    assert after[0].endswith(b"\r") and after[2].endswith(b"\r")


# --- Words of any kind ---------------------------------------------------------------

WORDS = st.text(alphabet="abPL.x\x01\u200b\u00a0가", min_size=1, max_size=14)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(st.data())
def test_every_word_of_any_sentence_has_one_place(tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp()
    (folder / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    sentences = data.draw(
        st.lists(st.lists(WORDS, min_size=1, max_size=9), min_size=1, max_size=4)
    )
    length = data.draw(st.integers(3, 12))
    text = "\n\n".join("\n".join(f"{w} O" for w in words) for words in sentences)
    (folder / "dev.txt").write_text(text)
    context = data.draw(st.booleans())
    task = task_of(
        folder, max_seq_length=length, document_context=context, entity_types=["X"]
    )
    examples = task.read("dev")
    assert [list(example.words) for example in examples] == sentences
    for example in examples:
        answered = np.zeros(len(example.words), int)
        for row in task.featurize(example, "dev"):
            assert len(row.input_ids) <= length
            own, places = row.notes
            answered[own] += 1
            assert row.labels["label_weights"].sum() == len(places)
            assert row.labels["label_weights"][places].all()
            for word, place in zip(example.words[own], places, strict=True):
                first = [*task.tokenizer.tokenize(word), "[UNK]"][0]
                assert VOCABULARY[row.input_ids[place]] == first
        assert (answered == 1).all()


@pytest.mark.slow
def test_long_and_strange_words_keep_their_tags(plain, tmp_path, capsys):
    """From file to file; the first has more pieces than a row."""
    folder = shutil.copytree(plain, tmp_path / "copy")
    lines = ["P" + "a" * 60, "\x01", "b", "", *["La"] * 50, ""]
    (folder / "test.txt").write_text("\n".join(lines))
    run(folder, do_predict=True)
    after = (folder / "output" / "predictions.txt").read_text().split("\n")
    assert [line.rpartition(" ")[0] for line in after] == lines
    assert after[0].endswith("-PER")
    assert sum(line.endswith("-LOC") for line in after[4:54]) > 45
    printed = capsys.readouterr().out
    assert "1 words are longer than a row and cut" in printed
    assert "2 are longer than a row and read in parts" in printed


def test_document_context_fills_rows_with_the_sentences_around(folder):
    (folder / "dev.txt").write_text(
        "-DOCSTART- O\n\na O\nPa B-PER\n\nb O\n. O\n\n-DOCSTART- O\n\nLab B-LOC\n"
    )
    task = task_of(folder, document_context=True, entity_types=["LOC", "PER"])

    def rows(**changes):
        task.given = dataclasses.replace(task.given, **changes)
        examples = task.read("dev")
        made = [row for e in examples for row in task.featurize(e, "dev")]
        texts = [" ".join(VOCABULARY[id] for id in row.input_ids) for row in made]
        return texts, [row.notes[1].tolist() for row in made]

    around = "[CLS] a P ##a b . [SEP]"
    assert rows() == ([around, around, "[CLS] L ##a ##b [SEP]"], [[1, 2], [4, 5], [1]])
    assert rows(max_seq_length=6) == (
        ["[CLS] a P ##a b [SEP]", "[CLS] P ##a b . [SEP]", "[CLS] L ##a ##b [SEP]"],
        [[1, 2], [3, 4], [1]],
    )
    alone = ["[CLS] a P ##a [SEP]", "[CLS] b . [SEP]", "[CLS] L ##a ##b [SEP]"]
    assert rows(document_context=False) == (alone, [[1, 2], [1, 2], [1]])


def test_the_work_for_a_sentence_does_not_grow_with_its_document(folder):
    """Without -DOCSTART- lines a whole file is one document."""
    looked_at = 0

    class Word(str):
        def __hash__(self):
            nonlocal looked_at
            looked_at += 1
            return super().__hash__()

        def __eq__(self, other):
            nonlocal looked_at
            looked_at += 1
            return super().__eq__(other)

    task = task_of(folder, document_context=True, entity_types=["X"])
    counts = []
    for number in (100, 200):
        looked_at = 0
        sentences = [
            tags.Sentence((Word("Pa"), Word("b")), None, 1, 0, 2 * i)
            for i in range(number)
        ]
        made = [
            list(task.featurize(example, "test"))
            for example in tags.in_documents(sentences)
        ]
        assert sum(map(len, made)) == number
        counts.append(looked_at)
    assert counts[1] <= 2 * counts[0]


def test_documents_of_like_number_are_not_taken_for_each_other(folder):
    task = task_of(folder, document_context=True, entity_types=["X"])
    for words in (("a", "b"), ("b", "a"), ("a", "b")):
        sentences = [tags.Sentence(words, None, 1, 0, 0)]
        (example,) = tags.in_documents(sentences)
        (row,) = task.featurize(example, "dev")
        inside = [task.tokenizer.vocabulary.ids[word] for word in words]
        assert row.input_ids[1:-1] == inside


@pytest.mark.slow
def test_document_context_trains_and_says_where_no_document_begins(in_context):
    assert results(in_context)["eval_f1"] > 0.5
    said = (in_context / "said.txt").read_text()
    assert "20 have no -DOCSTART- line before them" in said


# --- A frozen encoder ----------------------------------------------------------------


@pytest.mark.slow
def test_encoder_stays_as_it_is_under_features(frozen, tmp_path):
    trained = results(frozen)
    assert trained["eval_f1"] > 0.7
    before, after = jobs.weights(frozen, "encoder"), jobs.weights(frozen)
    for name, value in before.items():
        if name != "global_step":
            np.testing.assert_array_equal(after[name], value, err_msg=name)
            assert f"{name}/adam_m" not in after
    assert "lstm_0/backward_lstm/lstm_cell/kernel/adam_m" in after
    assert "layer_weights/adam_m" in after
    assert after["lstm_0/forward_lstm/lstm_cell/kernel"].shape == (16, 4 * 12)
    folder = shutil.copytree(frozen, tmp_path / "copy")
    changes = FROZEN | {"init_checkpoint": str(frozen / "encoder")}
    run(folder, do_eval=True, **changes)
    assert results(folder) == trained
    with pytest.raises(
        UserError, match="--features is none, but the model was trained with"
    ):
        run(folder, do_eval=True)
    with pytest.raises(
        UserError, match="with --lstm_layers=0 --lstm_size=12; pass the"
    ):
        run(folder, do_eval=True, **changes | {"lstm_layers": 2})
    with pytest.raises(
        UserError, match="features was 'weighted_sum_all' and is now 'last'"
    ):
        run(folder, do_train=True, **changes | {"features": "last"})


def batch():
    ids = np.array([[2, 5, 6, 11, 3, 0, 0], [2, 7, 8, 9, 10, 12, 3]])
    return {
        "input_ids": ids,
        "input_mask": (ids > 0).astype(int),
        "segment_ids": np.zeros_like(ids),
    }


@pytest.mark.slow
@pytest.mark.parametrize("features", frozen_tagging.FEATURES)
def test_features_and_lstms_are_what_they_are_called(features):
    # The attention's dropout stays.
    config = dataclasses.replace(DEEP, num_hidden_layers=5, hidden_dropout_prob=0.0)
    objective = frozen_tagging.FrozenTagging(3, features)
    objective.lstm = BiLstm(2, 6)
    model = objective.network(config, seed=3)
    weights = {variable.path: variable for variable in model.weights}
    if features.startswith("weighted_sum"):
        number = {"weighted_sum_all": 5, "weighted_sum_last_four": 4}[features]
        weights["layer_weights"].assign([0.5, -1.0, 0.0, 2.0, 1.0][:number])
    weights = {name: variable.numpy() for name, variable in weights.items()}
    forward, backward = (
        weights[f"lstm_0/{way}_lstm/lstm_cell/kernel"]
        for way in ("forward", "backward")
    )
    assert np.any(forward != backward)
    assert np.array_equal(
        objective.network(config, seed=3).lstms[0].weights[0].numpy(), forward
    )

    logits = np.array(model(batch())["logits"])
    dropouts = layers.Dropouts(np.array([1, 2]))
    training = model(batch(), dropouts=dropouts)["logits"]
    np.testing.assert_array_equal(logits, training)  # no dropout in the encoder

    all_of_it = model.encoder(batch(), return_all=True)
    embeddings, *encoded = (
        np.array(x)
        for x in (all_of_it["embedding_output"], *all_of_it["layer_outputs"])
    )
    odds = np.exp(weights.get("layer_weights", np.zeros(1)))
    last_four = encoded[1:]

    def weighted(outputs):
        return sum(w * x for w, x in zip(odds / odds.sum(), outputs, strict=False))

    expected = {
        "embeddings": embeddings,
        "second_to_last": encoded[3],
        "last": encoded[4],
        "sum_last_four": sum(last_four),
        "concat_last_four": np.concatenate(last_four, axis=-1),
        "weighted_sum_last_four": weighted(last_four),
        "weighted_sum_all": weighted(encoded),
    }[features]
    for row, length in enumerate((5, 7)):  # what lies behind has no influence
        states = numpy_lstm.bilstm(expected[row, :length], weights, 2)
        wanted = states @ weights["output_weights"].T + weights["output_bias"]
        np.testing.assert_allclose(logits[row, :length], wanted, atol=1e-6)


# --- Kills ---------------------------------------------------------------------------


@pytest.mark.slow
def test_resumed_run_ends_with_the_same_bits(frozen, tmp_path, capsys):
    changes = FROZEN | {
        "do_train": True,
        "init_checkpoint": str(frozen / "encoder"),
        "output_dir": str(tmp_path / "output"),
    }
    with jobs.dying(step=20):
        run(frozen, **changes)
    run(frozen, **changes)
    assert "continuing from step 20" in capsys.readouterr().out
    straight, again = jobs.weights(frozen), jobs.weights(tmp_path)
    assert straight.keys() == again.keys()
    for name, value in straight.items():
        assert np.array_equal(value, again[name]), name


# --- Refusals ------------------------------------------------------------------------


def refused(folder, message, **changes):
    """One line for the user; what lay in output_dir is as it was, with nothing beside."""
    output = folder / "output"
    output.mkdir()
    (output / "eval_results.txt").write_text("eval_f1 = 0.9\n")
    with pytest.raises((UserError, FileNotFoundError), match=message) as error:
        run(folder, **changes)
    assert "\n" not in str(error.value)
    assert (output / "eval_results.txt").read_text() == "eval_f1 = 0.9\n"
    left = {name for name in os.listdir(output) if "tfevents" not in name}
    # What was sound may be there already, for the next try; nothing half done is.
    sound = {"train.tf_record", "eval.tf_record", "task.json", "run.json", "vocab.txt"}
    sound |= {"bert_config.json", "eval_results.txt"}
    assert left <= sound | {f"{name}.json" for name in sound}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "dev.txt: contains no words"),
        ("\n\t\n-DOCSTART- O\n", "dev.txt: contains no words"),
        ("Pa B-PER\nb\n", "dev.txt:2: 1 columns, but the first line has 2"),
        ("Pa B-PER\n\nb c O\n", "dev.txt:3: 3 columns, but the first line has 2"),
        ("Pa\nb\n", r"dev.txt:1: the column of the tag is that of the word \('Pa'\)"),
        ("Pa B-PER\nb NN\n", "dev.txt:2: 'NN' is not a tag; tags are O outside"),
        ("Pa b-PER\n", "dev.txt:1: 'b-PER' is not a tag"),
        (
            "Pa B-PER\n\nb O\nX B-ORG\n",
            "dev.txt:4: entity type 'ORG' is not one of LOC",
        ),
        (b"Pa O\nb\xe9 O\n", r"dev.txt:2: not UTF-8 \(byte 0xe9"),
        (b"\xff\xfeP\x00", "dev.txt:1: not UTF-8"),
    ],
)
def test_broken_file_is_refused_in_one_line(folder, content, message):
    content = content if isinstance(content, bytes) else content.encode()
    (folder / "dev.txt").write_bytes(content)
    refused(folder, message, do_train=True, do_eval=True)


def all_outside(folder):
    (folder / "train.txt").write_text("a O\nb O\n" * 8)


def damaged_gzip(folder):
    packed = gzip.compress(b"Pa B-PER\n" * 1000)
    (folder / "dev.txt.gz").write_bytes(packed[: len(packed) // 2])


def larger_vocabulary(folder):
    with open(folder / "vocab.txt", "a") as file:
        file.write("another\n")


def no_separator(folder):
    text = (folder / "vocab.txt").read_text()
    (folder / "vocab.txt").write_text(text.replace("[SEP]", "SEP"))


def other_labels(folder):
    weights = save_encoder(folder)
    weights["output_weights"] = np.zeros((9, 16), np.float32)
    checkpoint.save(str(folder / "other"), 1, weights, keep=1)


@pytest.mark.parametrize(
    ("prepare", "changes", "message"),
    [
        (None, {"do_eval": False}, "nothing to do; pass at least one of --do_train"),
        (None, {"max_seq_length": 2}, "--max_seq_length=2: must be at least 3"),
        (None, {"max_seq_length": 41}, "--max_seq_length=41 is more than max_position"),
        (None, {"dev_file": "nowhere.txt"}, "nowhere.txt"),
        (None, {"word_column": 4}, "dev.txt:3: 4 columns, but --word_column=4"),
        (
            None,
            {"word_column": 3},
            "dev.txt:3: the column of the tag is that of the word",
        ),
        (None, {"tag_column": 1}, "dev.txt:3: 'NN' is not a tag"),
        (
            None,
            {"entity_types": ["PER"]},
            "dev.txt:.*: entity type 'LOC' is not one of PER",
        ),
        (None, {"entity_types": ["A", "A"]}, "--entity_types: A is repeated"),
        (None, {}, "no entity types are known; train first"),
        (
            all_outside,
            {"do_train": True},
            "train.txt: contains no entities",
        ),
        (
            damaged_gzip,
            {"dev_file": "dev.txt.gz"},
            "dev.txt.gz:.*: the compressed data",
        ),
        (larger_vocabulary, {}, "vocab.txt: 15 tokens, more than vocab_size=14"),
        (no_separator, {}, r"vocab.txt: no line is \[SEP\]"),
        (
            None,
            {"do_train": True, "train_batch_size": [49]},
            "48 training examples do not fill",
        ),
        (
            None,
            {"do_train": True, "features": "last"},
            "--features=last: a frozen encoder",
        ),
        (
            None,
            {"features": "last", "lstm_size": 0},
            "--lstm_size=0: must be at least 1",
        ),
        (
            save_encoder,
            {"entity_types": ["LOC", "PER"], "init_checkpoint": "{folder}/encoder"},
            "not in the checkpoint: output_bias, output_weights",
        ),
        (
            other_labels,
            {"do_train": True, "init_checkpoint": "{folder}/other"},
            r"output_weights is \[9,16\] in the checkpoint and \[5,16\] in the model",
        ),
    ],
)
def test_flags_that_do_not_fit_are_refused_in_one_line(
    folder, prepare, changes, message
):
    if prepare:
        prepare(folder)
    changes = {
        name: value.format(folder=folder) if isinstance(value, str) else value
        for name, value in ({"do_eval": True} | changes).items()
    }
    refused(folder, message, **changes)


def test_features_of_more_layers_than_there_are_are_refused(folder):
    config = dataclasses.replace(DEEP, num_hidden_layers=3)
    (folder / "config.json").write_text(config.to_json_string())
    changes = {"do_eval": True, "features": "sum_last_four"}
    refused(folder, "config.json has only num_hidden_layers=3", **changes)


@pytest.mark.slow
def test_command_line_ends_in_one_line(folder):
    (folder / "dev.txt").write_text("Pa B-PER\nb NN\n")
    done = forked.finished(jobs.command("run_ner.py", flags(folder, do_eval=True)))
    assert done.returncode == 1
    assert done.stderr.startswith(
        f"run_ner.py: error: {folder}/dev.txt:2: 'NN' is not a tag"
    )
    assert done.stderr.count("\n") == 1


# --- Serving -------------------------------------------------------------------------

GOLDEN = tests.GOLDEN / "squad"


def real_sentences():
    """Lines of a file: paragraphs of encyclopedia text, each a document."""
    contents = (
        json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
        for version in ("v1", "v2")
    )
    paragraphs = dict.fromkeys(
        paragraph["context"]
        for content in contents
        for article in content["data"]
        for paragraph in article["paragraphs"]
    )
    for paragraph in paragraphs:
        yield "-DOCSTART-\n\n"
        yield paragraph.replace(". ", " .\n\n").replace(" ", "\n") + "\n\n"


class Exported:
    """A tagger with random weights, in Python and as a SavedModel."""

    def __init__(self, folder, config=TINY, **changes):
        changes = {
            "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
            "do_lower_case": True,
            "entity_types": ["LOC", "PER"],
            "test_file": "real.txt",
            "max_seq_length": 32,
        } | changes
        folder = pathlib.Path(folder)
        (folder / "real.txt").write_text("".join(real_sentences()))
        config = dataclasses.replace(config, vocab_size=30522, initializer_range=0.5)
        (folder / "config.json").write_text(config.to_json_string())
        given = run_ner.Options(**flags(folder, do_predict=True, **changes))
        # LSTMs take time: what they are asked need not be as much.
        self.size = 40 if given.features else 200
        self.task = run_ner.Tagger(given, run_ner.run.make_tokenizer(given))
        self.model = self.task.objective().network(config, seed=3)
        self.served = served.Served(self.task, self.model, folder)

    def in_python(self, examples):
        found = served.predictions(self.task, self.model, examples, "test")
        return self.task.answers(found)

    def answers(self, examples):
        return self.served.answers([self.task.request(each) for each in examples])


def check_same(answers, expected):
    assert len(answers) == len(expected) > 0
    for answer, other in zip(answers, expected, strict=True):
        assert answer["tags"] == other["tags"]
        assert answer["entities"] == other["entities"]
        assert answer["probabilities"] == pytest.approx(
            other["probabilities"], abs=1e-5
        )


KINDS = {
    "plain": {"tag_scheme": "iobes"},
    "context": {"document_context": True, "tag_scheme": "iob1"},
    "frozen": {"config": DEEP, "features": "concat_last_four", "lstm_size": 5},
}


@pytest.fixture(scope="module", params=KINDS)
def exported(tmp_path_factory, request):
    folder = tmp_path_factory.mktemp(request.param)
    return Exported(folder, **KINDS[request.param])


@pytest.mark.slow
def test_a_saved_model_answers_as_the_script(exported):
    examples = exported.task.read("test")[: exported.size]
    assert len(examples) == exported.size
    expected = exported.in_python(examples)
    check_same(exported.answers(examples), expected)
    kinds = {entity["type"] for answer in expected for entity in answer["entities"]}
    assert kinds == {"LOC", "PER"}
    # Whatever the batch.
    check_same(exported.answers(examples[:1]), expected[:1])
    check_same(exported.answers(examples[30:37]), expected[30:37])
    samples = exported.task.samples()
    check_same(exported.answers(samples), exported.in_python(samples))


@pytest.mark.slow
def test_sentences_of_one_request_are_a_document(exported):
    examples = exported.task.read("test")
    examples = [each for each in examples if each.document == examples[0].document]
    words, tags_, entities = [], [], []
    for example, answer in zip(examples, exported.in_python(examples), strict=True):
        for entity in answer["entities"]:
            place = {name: entity[name] + len(words) for name in ("start", "stop")}
            entities.append(entity | place)
        words += [*example.words, ""]
        tags_ += [*answer["tags"], ""]
    request = {name: "" for name in exported.task.inputs} | {"words": words}
    (answer,) = exported.served.answers([request])
    assert len(examples) > 1
    assert answer["tags"] == tags_
    assert answer["entities"] == entities


@pytest.mark.slow
def test_a_saved_model_has_an_answer_to_everything(exported):
    def ask(*lists):
        others = {name: "" for name in exported.task.inputs}
        return exported.served.answers([others | {"words": each} for each in lists])

    nothing = {"tags": [], "probabilities": [], "entities": []}
    assert ask() == []
    assert ask([]) == [nothing]
    assert ask([], []) == [nothing, nothing]
    (answer,) = ask(["", "", ""])
    assert answer == {"tags": [""] * 3, "probabilities": [0.0] * 3, "entities": []}
    huge = ["a" * 1_000_000, "a." * 500_000, "x"]
    odd = [b"\xff\xfe", b"caf\xe9", "\x00", " ", "\u3000"]
    (*plain, odd_answer), alone = ask(huge, ["London"], odd), ask(["London"])
    check_same(plain[1:], alone)
    assert all(tags.is_tag(tag) for tag in (*plain[0]["tags"], *odd_answer["tags"]))
    assert odd_answer["tags"] == ask(["\ufffd", "caf\ufffd", *"\u200b" * 3])[0]["tags"]
    many = ["London"] * 150 * exported.size
    (answer,) = ask(many)
    assert len(answer["tags"]) == len(many)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "in_context", "frozen"])
def test_an_export_answers_as_the_run_that_made_it(request, kind):
    output = request.getfixturevalue(kind) / "output"
    blocks = (output / "predictions.txt").read_text().split("\n\n")
    columns = [
        [line.split(" ") for line in block.strip().split("\n")] for block in blocks
    ]
    requests, expected = [], []
    for sentence_ in columns:
        if sentence_[0][0] == "-DOCSTART-":
            requests.append({"words": []})
            expected.append([])
            continue
        requests[-1]["words"] += [*(cells[0] for cells in sentence_), ""]
        expected[-1] += [*(cells[-1] for cells in sentence_), ""]
    if kind == "in_context":
        requests = [request | {"before": "", "after": ""} for request in requests]
    found = predictor.Predictor(str(output)).predict(requests)
    assert len(expected) == 2
    assert [answer["tags"] for answer in found] == expected


# --- Models of other programs ----------------------------------------------------------


def test_labels_of_another_program_are_read_in_their_order_or_refused(folder):
    given = run_ner.Options(**flags(folder, do_predict=True))
    tagger = run_ner.Tagger(given, run_ner.run.make_tokenizer(given))
    labels = ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    tagger.restore({"head": "tagging", "labels": labels})
    assert tagger.types == ("LOC", "PER") and tagger.labels == labels
    swapped = ["O", "B-PER", "I-PER", "I-LOC", "B-LOC"]
    tagger = run_ner.Tagger(given, run_ner.run.make_tokenizer(given))
    with pytest.raises(
        UserError, match="only reads O, B-PER, I-PER, B-LOC, I-LOC: train"
    ):
        tagger.restore({"head": "tagging", "labels": swapped})
