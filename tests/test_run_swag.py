"""run_swag.py as a user meets it: both formats, results, refusals, a kill."""

import csv
import dataclasses
import gzip
import json
import os
import random
import shutil

import numpy as np
import pytest

import run_swag
import tests
from training import checkpoint
from training.backend import tf
from modeling.encoders.bert import BertEncoder
from serving import predictor
from tests import forked, jobs, served, tiny
from tests.jobs import results
from text.errors import UserError
from text.tokenizers.vocabulary import SPECIAL_TOKENS

WORDS = [*"abcdefgh", "she", "."]
TINY = tiny.config(vocab_size=len(SPECIAL_TOKENS) + len(WORDS))
COLUMNS = ["", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source"]
ENDINGS = ["ending0", "ending1", "ending2", "ending3"]


def swag_lines(count, seed, labelled=True):
    """As SWAG's files; only the right ending ends."""
    rng = random.Random(seed)
    lines = [[*COLUMNS, *ENDINGS, *(["label"] if labelled else [])]]
    for number in range(count):
        endings = rng.sample("abcdefgh", 4)
        label = rng.randrange(4)
        endings[label] += " ."
        sent1 = " ".join(rng.choices("abcdefgh", k=rng.randint(1, 5)))
        line = [number, "v1", number, f"{sent1} She", sent1, "She", "gold", *endings]
        lines.append(line + [label] * labelled)
    return lines


def write_csv(path, lines):
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows(lines)


def write_files(folder):
    """SWAG's three files, a vocabulary and a config."""
    write_csv(folder / "train.csv", swag_lines(64, seed=1))
    write_csv(folder / "val.csv", swag_lines(21, seed=2))
    write_csv(folder / "test.csv", swag_lines(10, seed=3, labelled=False))
    tiny.write(folder, WORDS, TINY)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_files(tmp_path)


def flags(folder, **changes):
    own = {"data_dir": str(folder), "max_seq_length": 24}
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_swag, flags(folder, **changes))


def write_json_lines(path, *objects):
    path.write_text("".join(json.dumps(each) + "\n" for each in objects))


def answers(folder, name="predictions.jsonl"):
    lines = (folder / "output" / name).read_text().splitlines()
    return [json.loads(line) for line in lines]


WHOLE = {"do_train": True, "do_eval": True, "do_predict": True}
SAVED = {"save_checkpoints_steps": 10, "log_every_steps": 5}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The same after a whole run."""
    folder = write_files(tmp_path_factory.mktemp("trained"))
    run(folder, learning_rate=[1e-2], num_train_epochs=[6.0], **SAVED, **WHOLE)
    return folder


class ByHand:
    """Probabilities from the encoder alone, one choice after the other."""

    def __init__(self, path):
        self.weights = checkpoint.read(checkpoint.resolve(str(path)))
        assert "output_bias" not in self.weights
        encoder = BertEncoder(TINY)
        for variable in encoder.variables:
            variable.assign(self.weights[variable.path])
        self.encoder = tf.function(encoder, reduce_retracing=True)

    def __call__(self, context, starts_and_choices):
        ids = {word: n for n, word in enumerate([*SPECIAL_TOKENS, *WORDS])}
        scores = []
        for text in starts_and_choices:
            a = ["[CLS]", *context.split(), "[SEP]"]
            b = [*text.lower().split(), "[SEP]"]
            outputs = self.encoder(
                {
                    "input_ids": tf.constant([[ids[word] for word in a + b]]),
                    "segment_ids": tf.constant([[0] * len(a) + [1] * len(b)]),
                }
            )
            pooled = outputs["pooled_output"].numpy()[0]
            scores.append(float(pooled @ self.weights["output_weights"][0]))
        odds = np.exp(np.array(scores) - max(scores))
        return odds / odds.sum()


# --- Runs ----------------------------------------------------------------------------


@pytest.mark.slow
def test_swag_from_training_to_answers(trained):
    output = trained / "output"
    names = {path.name for path in output.iterdir() if "tfevents" not in path.name}
    assert names >= {
        "bert_config.json",
        "eval_results.json",
        "eval_results.txt",
        "mistakes.html",
        "model.ckpt-48.index",  # 64 / 8 * 6
        "predictions.jsonl",
        "test_results.tsv",
    }
    lines = (output / "eval_results.txt").read_text().splitlines()
    keys = [line.split(" = ")[0] for line in lines]
    assert keys == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert results(trained)["eval_accuracy"] > 0.8  # by chance 0.25
    predicted = answers(trained)
    assert len(predicted) == 10
    assert list(predicted[0]) == [
        "context",
        "start",
        "choices",
        "predicted",
        "probabilities",
    ]
    table = [
        [float(cell) for cell in line.split("\t")]
        for line in (output / "test_results.tsv").read_text().splitlines()
    ]
    assert table == [answer["probabilities"] for answer in predicted]


@pytest.mark.slow
def test_numbers_are_those_of_the_encoder_asked_choice_by_choice(json_trained, folder):
    errs = str(json_trained / "output")  # trained on few examples, of another kind
    given = {"do_eval": True, "do_predict": True, "test_file": "val.csv"}
    run(folder, init_checkpoint=errs, **given)
    by_hand = ByHand(errs)
    right, losses = 0, []
    for answer in answers(folder):
        texts = [f"She {choice}" for choice in answer["choices"]]
        expected = by_hand(answer["context"], texts)
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
        assert answer["predicted"] == expected.argmax()
        right += expected.argmax() == answer["gold"]
        losses.append(-np.log(expected[answer["gold"]]))
    assert 0 < right < 21
    assert results(folder)["eval_accuracy"] == pytest.approx(right / 21)
    assert results(folder)["eval_loss"] == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.slow
def test_evaluation_alone_and_the_page_of_mistakes(json_trained, tmp_path):
    copy = shutil.copytree(json_trained, tmp_path / "copy")
    before = results(copy)
    run(copy, do_eval=True, **JSON_FILES)
    assert results(copy) == before
    page = (copy / "output" / "mistakes.html").read_text()
    wrong = round(12 * (1 - before["eval_accuracy"]))
    assert f"All {wrong} mistakes in 12 answers" in page
    assert "0: she" in page and "<th>probabilities</th>" in page


@pytest.mark.slow
def test_search_names_runs_no_better_than_one_answer(folder, capsys):
    right = [line[-1] for line in swag_lines(21, seed=2)[1:]]
    run(folder, do_train=True, num_trials=2, learning_rate=[1e-9])
    found = json.loads((folder / "output" / "search.json").read_text())
    assert found["trivial"] == max(map(right.count, right)) / 21
    assert found["metric"] == "accuracy"


# --- Choices -------------------------------------------------------------------------


def objects(count, seed):
    """Two to five choices; one key more than is needed."""
    rng = random.Random(seed)
    for number in range(count):
        choices = rng.sample("abcdefgh", rng.randint(2, 5))
        label = rng.randrange(len(choices))
        yield {
            "id": number,
            "context": f"{choices[label]} {choices[label]}",
            "start": "she",
            "choices": choices,
            "label": label,
        }


def write_json_files(folder):
    write_json_lines(folder / "train.jsonl", *objects(32, seed=1))
    dev = list(objects(12, seed=2))
    write_json_lines(folder / "dev.jsonl", *dev)
    # A training set with five choices, a test set with two and three.
    short = [e | {"choices": e["choices"][:3], "label": None} for e in dev]
    write_json_lines(folder / "test.jsonl", *short)
    return folder


@pytest.fixture
def json_folder(folder):
    return write_json_files(folder)


JSON_FILES = {
    "train_file": "train.jsonl",
    "dev_file": "dev.jsonl",
    "test_file": "test.jsonl",
}


@pytest.fixture(scope="module")
def json_trained(tmp_path_factory):
    """The same after a whole run with an export."""
    folder = write_files(tmp_path_factory.mktemp("json_trained"))
    run(write_json_files(folder), do_export=True, **WHOLE, **JSON_FILES)
    return folder


@pytest.mark.slow
def test_choices_that_are_not_there_count_for_nothing(json_trained):
    by_hand = ByHand(json_trained / "output")
    lines = (json_trained / "output" / "test_results.tsv").read_text().splitlines()
    numbers = set()
    for answer, line in zip(answers(json_trained), lines, strict=True):
        numbers.add(len(answer["choices"]))
        assert len(answer["probabilities"]) == len(answer["choices"])
        assert len(line.split("\t")) == len(answer["choices"])
        assert sum(answer["probabilities"]) == pytest.approx(1.0)
        texts = [f"she {choice}" for choice in answer["choices"]]
        expected = by_hand(answer["context"], texts)
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
    assert numbers == {2, 3}
    assert 0 <= results(json_trained)["eval_loss"] < 3


def test_endings_that_are_empty_at_the_end_of_a_line_are_no_choices(folder):
    lines = swag_lines(21, seed=2)
    lines[1][-3:] = ["", "", 1]
    write_csv(folder / "val.csv", lines)
    given = run_swag.Options(**flags(folder, do_eval=True))
    task = run_swag.MultipleChoice(given, run_swag.run.make_tokenizer(given))
    examples = task.read("dev")
    assert len(examples[0].choices) == 2 and examples[0].label == 1
    assert len(examples[1].choices) == 4
    assert task.layout(examples, 16).num_choices == 4


def test_csv_takes_quotes_line_breaks_and_any_number_of_endings(folder):
    (folder / "val.csv").write_bytes(
        b"\xef\xbb\xbfsent1,sent2,ending0,ending1,ending2,ending3,ending4,ending5,"
        b"ending6,ending7,ending8,ending9,ending10,label\r\n"
        b'"a, ""b""\r\nc",,a,b,c,d,e,f,g,h,a,b,right,10\r\n'
    )
    task = run_swag.MultipleChoice(
        run_swag.Options(**flags(folder, do_eval=True)), None
    )
    (example,) = task.read("dev")
    assert example.context == 'a, "b"\r\nc'
    assert example.start == ""
    assert example.choices[10] == "right" and example.label == 10


def test_packed_files_are_read(json_folder):
    packed = gzip.compress((json_folder / "dev.jsonl").read_bytes())
    (json_folder / "dev.jsonl.gz").write_bytes(packed)
    packed = gzip.compress((json_folder / "val.csv").read_bytes())
    (json_folder / "val.csv.gz").write_bytes(packed)
    for name, number in (("dev.jsonl.gz", 12), ("val.csv.gz", 21)):
        given = run_swag.Options(**flags(json_folder, do_eval=True, dev_file=name))
        assert len(run_swag.MultipleChoice(given, None).read("dev")) == number


@pytest.mark.slow
def test_long_choices_are_cut_and_counted(trained, folder, capsys):
    long = {"context": "a " * 30, "choices": ["b", "c " * 30], "label": 0}
    short = {"context": "a", "choices": ["b", "c"], "label": 0}
    write_json_lines(folder / "dev.jsonl", long, short)
    model = str(trained / "output")
    run(folder, do_eval=True, dev_file="dev.jsonl", init_checkpoint=model)
    assert "1 were cut to --max_seq_length" in capsys.readouterr().out


# --- Kills ---------------------------------------------------------------------------


@pytest.mark.slow
def test_resumed_run_ends_with_the_same_bits(trained, tmp_path, capsys):
    changes = {"do_train": True, "learning_rate": [1e-2], "num_train_epochs": [6.0]}
    folder = shutil.copytree(trained, tmp_path / "copy")
    jobs.forget_after(20, folder)
    run(folder, **changes, **SAVED)
    assert "continuing from step 20" in capsys.readouterr().out
    straight, again = jobs.weights(trained), jobs.weights(folder)
    assert straight.keys() == again.keys()
    for name, value in straight.items():
        assert np.array_equal(value, again[name]), name


# --- Refusals ------------------------------------------------------------------------


def with_column(name, value, lines=None):
    """CSV lines in which the third line has another value in one column."""
    lines = lines or swag_lines(21, seed=2)
    lines[2][lines[0].index(name)] = value
    return lines


def without_column(name):
    lines = swag_lines(21, seed=2)
    place = lines[0].index(name)
    return [line[:place] + line[place + 1 :] for line in lines]


BROKEN_CSV = {
    "no sent1": (without_column("sent1"), r"val.csv:1: no column 'sent1' among"),
    "no sent2": (without_column("sent2"), r"val.csv:1: no column 'sent2' among"),
    "a gap": (without_column("ending1"), r"val.csv:1: no column 'ending1' among"),
    "no label column": (without_column("label"), r"val.csv:1: no label; only a test"),
    "label 4": (
        with_column("label", "4"),
        r"val.csv:3: label '4' is not one of the 4 choices, which are numbered from 0 to 3",
    ),
    "label -1": (with_column("label", "-1"), r"val.csv:3: label '-1' is not one of"),
    "label gold": (
        with_column("label", "gold"),
        r"val.csv:3: label 'gold' is not one of",
    ),
    "label 0_1": (with_column("label", "0_1"), r"val.csv:3: label '0_1' is not one of"),
    "label ١": (with_column("label", "١"), r"val.csv:3: label '١' is not one of"),
    "label missing": (with_column("label", ""), r"val.csv:3: no label"),
    "empty ending": (with_column("ending1", " "), r"val.csv:3: choice 1 is empty"),
    "label of an empty ending": (
        with_column("ending3", "", with_column("label", "3")),
        r"val.csv:3: label '3' is not one of the 3 choices",
    ),
    "ragged": (
        [*swag_lines(2, seed=2), ["1", "2"]],
        r"val.csv:4: 2 columns, but the first line has 12",
    ),
    "header twice": (
        [["sent1", "sent1"], ["a", "b"]],
        r"val.csv:1: 1 columns have the same name \(sent1\)",
    ),
    "header only": (swag_lines(0, seed=2), r"val.csv: contains no examples"),
    "empty": ("", r"val.csv: the file is empty"),
    "cut off": (
        'sent1,sent2\n"a',
        r"val.csv:2: the row that begins here is not CSV \(unexpected end of data",
    ),
    "latin-1": (b"sent1\n\xe9", r"val.csv:2: not UTF-8 \(byte 0xe9"),
}


@pytest.mark.parametrize("name", BROKEN_CSV)
def test_broken_csv_is_refused_in_one_line(folder, name):
    content, message = BROKEN_CSV[name]
    path = folder / "val.csv"
    if isinstance(content, list):
        write_csv(path, content)
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(folder, message, do_eval=True)


BROKEN_JSON = {
    "cut off": ('{"context": "a", "choi', r"dev.jsonl:2: not JSON: Unterminated"),
    "a list": ("[1, 2]", r"dev.jsonl:2: not a JSON object: \[1, 2\]"),
    "no choices": ('{"context": "a"}', r"dev.jsonl:2: no 'choices' among context"),
    "no context": ('{"choices": ["a", "b"]}', r"dev.jsonl:2: no 'context' among"),
    "choices a text": (
        '{"context": "a", "choices": "ab", "label": 0}',
        r"dev.jsonl:2: choices is 'ab', not a list",
    ),
    "one choice": (
        '{"context": "a", "choices": ["a"], "label": 0}',
        r"dev.jsonl:2: 1 choices; there must be at least two",
    ),
    "choice a number": (
        '{"context": "a", "choices": ["a", 7], "label": 0}',
        r"dev.jsonl:2: 7 is not text",
    ),
    "context null": (
        '{"context": null, "choices": ["a", "b"], "label": 0}',
        r"dev.jsonl:2: None is not text",
    ),
    "label true": (
        '{"context": "a", "choices": ["a", "b"], "label": true}',
        r"dev.jsonl:2: label True is not one of the 2 choices",
    ),
    "label 0.5": (
        '{"context": "a", "choices": ["a", "b"], "label": 0.5}',
        r"dev.jsonl:2: label 0.5 is not one of the 2 choices",
    ),
    "label a list": (
        '{"context": "a", "choices": ["a", "b"], "label": [1]}',
        r"dev.jsonl:2: label \[1\] is not one of the 2 choices",
    ),
    "no label": (
        '{"context": "a", "choices": ["a", "b"]}',
        r"dev.jsonl:2: no label; only a test set may omit it",
    ),
    "half a character": (
        r'{"context": "a", "choices": ["a", "\ud800"], "label": 0}',
        r"dev.jsonl:2: not JSON: .* surrogates not allowed",
    ),
}


@pytest.mark.parametrize("name", BROKEN_JSON)
def test_broken_json_is_refused_in_one_line(json_folder, name):
    line, message = BROKEN_JSON[name]
    path = json_folder / "dev.jsonl"
    path.write_text(path.read_text().splitlines()[0] + f"\n{line}\n")
    refused(json_folder, message, do_eval=True, dev_file="dev.jsonl")


def smaller_vocabulary(folder):
    (folder / "vocab.txt").write_text("\n".join(["[UNK]", "[SEP]", "a"]) + "\n")


def larger_vocabulary(folder):
    with open(folder / "vocab.txt", "a") as file:
        file.write("another\n")


def other_checkpoint(folder):
    """A model of another size in output_dir's place."""
    checkpoint.save(str(folder / "other"), 1, {"output_weights": np.zeros((2, 16))}, 1)


@pytest.mark.parametrize(
    ("prepare", "changes", "message"),
    [
        (None, {"do_eval": False}, "nothing to do; pass at least one of --do_train"),
        (None, {"max_seq_length": 4}, "--max_seq_length=4: must be at least 5"),
        (None, {"max_seq_length": 41}, "--max_seq_length=41 is more than max_position"),
        (None, {"dev_file": "dev.csv"}, "dev.csv"),
        (
            None,
            {"do_train": True, "train_batch_size": [99]},
            "64 training examples do not fill",
        ),
        (None, {"init_checkpoint": "nowhere"}, "nowhere: no such checkpoint"),
        (None, {"output_dir": "{folder}/vocab.txt"}, "vocab.txt: cannot be"),
        (smaller_vocabulary, {}, r"\[CLS\]"),
        (larger_vocabulary, {}, "vocab.txt: 16 tokens, more than vocab_size=15"),
        (
            other_checkpoint,
            {"init_checkpoint": "{folder}/other"},
            r"output_weights is \[2,16\] in the checkpoint and \[1,16\] in the model",
        ),
        (None, {}, "contains no checkpoint to evaluate"),
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


def refused(folder, message, **changes):
    """One line for the user; what lay in output_dir is as it was, with nothing beside."""
    output = folder / "output"
    output.mkdir()
    (output / "eval_results.txt").write_text("eval_accuracy = 0.9\n")
    with pytest.raises((UserError, FileNotFoundError), match=message) as error:
        run(folder, **changes)
    assert "\n" not in str(error.value)
    assert (output / "eval_results.txt").read_text() == "eval_accuracy = 0.9\n"
    left = {name for name in os.listdir(output) if "tfevents" not in name}
    # What was sound may be there already, for the next try; nothing half done is.
    sound = {"train.tf_record", "eval.tf_record", "task.json", "run.json", "vocab.txt"}
    sound |= {"bert_config.json", "eval_results.txt"}
    assert left <= sound | {f"{name}.json" for name in sound}


@pytest.mark.slow
def test_command_line_ends_in_one_line(folder):
    write_csv(folder / "val.csv", with_column("label", "4"))
    given = flags(folder, do_eval=True)
    done = forked.finished(jobs.command("run_swag.py", given))
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"run_swag.py: error: {folder}/val.csv:3: label '4' is not one of the 4 "
        "choices, which are numbered from 0 to 3"
    )


# --- Serving -------------------------------------------------------------------------

GOLDEN = tests.GOLDEN / "squad"


def real_questions():
    """Yields questions about encyclopedia text; to choose from: all answers around."""
    for version in ("v1", "v2"):
        content = json.loads((GOLDEN / f"{version}_dev.json").read_text("utf-8"))
        for article in content["data"]:
            for paragraph in article["paragraphs"]:
                questions = paragraph["qas"]
                answers = {a["text"]: 0 for each in questions for a in each["answers"]}
                if len(answers) > 1:
                    for each in questions:
                        yield {
                            "context": f" {paragraph['context']}\n",
                            "start": each["question"],
                            "choices": list(answers)[:7],
                        }


class Exported:
    """A model with random weights, in Python and as a SavedModel."""

    def __init__(self, folder):
        write_json_lines(folder / "real.jsonl", *real_questions())
        changes = {
            "vocab_file": str(GOLDEN / "uncased_vocab.txt"),
            "test_file": "real.jsonl",
            "do_predict": True,
            "max_seq_length": 40,
        }
        config = dataclasses.replace(TINY, vocab_size=30522, initializer_range=0.3)
        (folder / "config.json").write_text(config.to_json_string())
        given = run_swag.Options(**flags(folder, **changes))
        self.task = run_swag.MultipleChoice(given, run_swag.run.make_tokenizer(given))
        self.model = self.task.objective().network(config, seed=3)
        self.served = served.Served(self.task, self.model, folder)

    def in_python(self, examples):
        found = served.predictions(self.task, self.model, examples, "test")
        return self.task.answers(found)

    def answers(self, examples):
        return self.served.answers([self.task.request(each) for each in examples])


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    return Exported(tmp_path_factory.mktemp("swag"))


def check_same(answers, expected):
    assert len(answers) == len(expected) > 0
    for answer, other in zip(answers, expected, strict=True):
        chances = answer["probabilities"]
        assert chances == pytest.approx(other["probabilities"], abs=1e-5)
        if not chances:
            assert answer["predicted"] == other["predicted"]
            continue
        # Of two that are as probable but for rounding, either may be the best.
        assert chances[answer["predicted"]] == max(chances)
        assert chances[other["predicted"]] == pytest.approx(max(chances), abs=1e-5)


@pytest.mark.slow
def test_a_saved_model_answers_as_the_script(exported):
    examples = exported.task.read("test")[:200]
    assert len(examples) == 200
    assert {len(example.choices) for example in examples} == set(range(2, 8))
    expected = exported.in_python(examples)
    assert len({answer["predicted"] for answer in expected}) > 3
    check_same(exported.answers(examples), expected)
    # Whatever the batch.
    check_same(exported.answers(examples[:1]), expected[:1])
    check_same(exported.answers(examples[30:37]), expected[30:37])
    samples = exported.task.samples()
    check_same(exported.answers(samples), exported.in_python(samples))


def ask(exported, context, start, *lists):
    return exported.served.answers(
        [{"context": context, "start": start, "choices": each} for each in lists]
    )


@pytest.mark.slow
def test_a_saved_model_has_an_answer_to_everything(exported):
    assert ask(exported, "", "") == []
    nothing = {"predicted": 0, "probabilities": []}
    assert ask(exported, "a", "b", []) == [nothing]
    assert ask(exported, "a", "b", [], ["", ""]) == [
        nothing,
        {"predicted": 0, "probabilities": [0.0, 0.0]},
    ]
    assert ask(exported, "a", "", ["b"])[0] == {"predicted": 0, "probabilities": [1.0]}
    huge = "a" * 1_000_000, "b. " * 300_000
    (answer,) = ask(exported, *huge, [*huge, "c"])
    assert sum(answer["probabilities"]) == pytest.approx(1.0)
    odd = ask(exported, b"\xff caf\xe9", b"\xc3", [b"\xff\xfe", "\0", " a"])
    check_same(odd, ask(exported, "caf\ufffd", "", ["\ufffd", "\u200b", "a "]))


@pytest.mark.slow
def test_padding_counts_for_nothing_and_an_empty_choice_for_itself(exported):
    context, start = "The cat sat.", "Then it"
    plain, padded, empty = ask(
        exported,
        context,
        start,
        ["slept.", "flew away."],
        ["slept.", "flew away.", "", ""],
        ["slept.", "", "flew away."],
    )
    assert padded["probabilities"] == pytest.approx([*plain["probabilities"], 0, 0])
    slept, nothing, flew = empty["probabilities"]
    assert nothing > 0
    assert slept / flew == pytest.approx(
        plain["probabilities"][0] / plain["probabilities"][1], rel=1e-4
    )


@pytest.mark.slow
def test_an_export_answers_as_the_run_that_made_it(json_trained):
    """Sets differ in their number of choices."""
    expected = answers(json_trained)
    names = ("context", "start", "choices")
    exported = predictor.Predictor(str(json_trained / "output"))
    requests = [{name: answer[name] for name in names} for answer in expected]
    check_same(exported.predict(requests), expected)
    # As in the files of the task, the start may be left out.
    with_empty = [request | {"start": ""} for request in requests]
    for request in requests:
        del request["start"]
    assert exported.predict(requests) == exported.predict(with_empty)
