"""run_classifier.py: the release's files and numbers, GLUE's layouts, your own files."""

import gzip
import json
import os
import re

import numpy as np
import pytest

import convert_checkpoint
import run_classifier
import tests
from training import checkpoint
from training import run as training_run
from training.backend import tf
from tests import jobs, tiny
from tests.jobs import results
from text.errors import UserError
from text.tasks import glue
from text.tokenizers.vocabulary import SPECIAL_TOKENS, Vocabulary
from text.tokenizers.wordpiece import WordPiece
from training.finetuning import mistakes
from training.finetuning.task import Predictions

ROOT = tests.ROOT
GOLDEN = ROOT / "tests" / "golden"
WORDS = "the a cat dog sat ran on under mat hat red blue".split()
TINY = tiny.config(max_position_embeddings=32)


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


def text(rng):
    return " ".join(rng.choice(WORDS, size=rng.integers(1, 8)))


def options(folder, task_name, **changes):
    own = {
        "task_name": task_name,
        "data_dir": str(folder),
        "max_seq_length": 32,
        "num_train_epochs": [2.0],
    }
    return run_classifier.Options(**jobs.flags(folder, **own | changes))


def task(folder, task_name, **changes):
    tokenizer = WordPiece(Vocabulary.load(str(folder / "vocab.txt")))
    given = options(
        folder, task_name, do_train=changes.pop("do_train", True), **changes
    )
    return run_classifier.Classifier(given, tokenizer)


def run(folder, task_name, **changes):
    run_classifier.main(options(folder, task_name, **changes))


def write_lines(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


# --- The release's numbers -----------------------------------------------------------


@pytest.mark.slow
def test_features_and_outputs_equal_the_releases(tmp_path):
    examples = json.loads((GOLDEN / "classifier" / "examples.json").read_text())
    with np.load(GOLDEN / "classifier" / "outputs.npz") as file:
        expected = dict(file)
    with open(tmp_path / "dev.jsonl", "w") as file:
        for example in examples:
            file.write(json.dumps(example) + "\n")
    tensors = checkpoint.read(str(GOLDEN / "checkpoint" / "bert_model.ckpt"))
    with np.load(GOLDEN / "classifier" / "head.npz") as file:
        tensors |= dict(file)
    (tmp_path / "model").mkdir()
    prefix = checkpoint.save(str(tmp_path / "model"), 1, tensors, keep=1)
    common = {
        "data_dir": str(tmp_path),
        "vocab_file": str(GOLDEN / "checkpoint" / "vocab.txt"),
        "bert_config_file": str(GOLDEN / "checkpoint" / "bert_config.json"),
        "output_dir": str(tmp_path / "output"),
        "init_checkpoint": prefix,
        "max_seq_length": 32,
        "dev_file": "dev.jsonl",
        "test_file": "dev.jsonl",
        "text_a_column": "text_a",
        "text_b_column": "text_b",
        "labels": ["0", "1", "2"],
    }
    singles = [i for i, example in enumerate(examples) if example["text_b"] is None]
    pairs = [i for i in range(len(examples)) if i not in singles]
    assert singles and pairs
    for some, text_b in ((singles, None), (pairs, "text_b")):
        with open(tmp_path / "dev.jsonl", "w") as file:
            for i in some:
                file.write(json.dumps(examples[i]) + "\n")
        run_classifier.main(
            run_classifier.Options(
                task_name="custom",
                do_eval=True,
                do_predict=True,
                **common | {"text_b_column": text_b},
            )
        )
        rows = tf.data.TFRecordDataset(str(tmp_path / "output" / "eval.tf_record"))
        for i, record in zip(some, rows.as_numpy_iterator(), strict=True):
            features = tf.train.Example.FromString(record).features.feature
            for name in ("input_ids", "input_mask", "segment_ids", "label_ids"):
                wanted = np.atleast_1d(expected[name][i]).tolist()
                assert list(features[name].int64_list.value) == wanted, (i, name)
            assert list(features["is_real_example"].int64_list.value) == [1]
        lines = (tmp_path / "output" / "test_results.tsv").read_text().splitlines()
        got = np.array([[float(x) for x in line.split("\t")] for line in lines])
        np.testing.assert_allclose(got, expected["probabilities"][some], atol=1e-5)
        loss = expected["per_example_loss"][some].mean()
        assert results(tmp_path)["eval_loss"] == pytest.approx(loss, abs=1e-5)


@pytest.mark.slow
def test_command_of_the_2018_readme_runs(folder):
    rng = np.random.default_rng(0)
    head = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for name, number in (("train", 32), ("dev", 9)):
        lines = [f"{i % 2}\t1\t2\t{text(rng)}\t{text(rng)}" for i in range(number)]
        write_lines(folder / f"{name}.tsv", head + lines)
    write_lines(
        folder / "test.tsv",
        ["index\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        + [f"{i}\t1\t2\t{text(rng)}\t{text(rng)}" for i in range(5)],
    )
    given = {
        "task_name": "MRPC",
        "do_train": "true",
        "do_eval": "true",
        "do_predict": "true",
        "data_dir": folder,
        "vocab_file": f"{folder}/vocab.txt",
        "bert_config_file": f"{folder}/config.json",
        "max_seq_length": 32,
        "train_batch_size": 8,
        "learning_rate": "2e-5",
        "num_train_epochs": "3.0",
        "output_dir": f"{folder}/output/",
    }
    # A sound run on CPUs leaves stderr empty. The default holds back what TensorFlow says
    # of a missing GPU; a user's choice may not.
    env = jobs.ENVIRONMENT | {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = jobs.finished(jobs.command("run_classifier.py", given), env=env)
    assert (done.returncode, done.stderr) == (0, "")
    names = os.listdir(folder / "output")
    for name in (
        "eval_results.txt",
        "test_results.tsv",
        "train.tf_record",
        "eval.tf_record",
        "predict.tf_record",
        "checkpoint",
        "model.ckpt-12.index",
        "mistakes.html",
    ):
        assert name in names
    assert (folder / "output" / "curves.png").read_bytes().startswith(b"\x89PNG")
    lines = (folder / "output" / "test_results.tsv").read_text().splitlines()
    assert len(lines) == 5
    for line in lines:
        assert sum(map(float, line.split("\t"))) == pytest.approx(1.0)
    keys = [
        line.split(" = ")[0]
        for line in (folder / "output" / "eval_results.txt").read_text().splitlines()
    ]
    assert keys == ["eval_accuracy", "eval_f1", "eval_loss", "global_step", "loss"]
    lines = (folder / "output" / "MRPC.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction" and len(lines) == 6
    assert all(line.split("\t")[1] in ("0", "1") for line in lines[1:])


# --- GLUE's layouts ------------------------------------------------------------------

# A header, one line for training and one for the test set, and what they are read as.
LAYOUTS = {
    "CoLA": (None, 'gj04\t1\t\tHe "sat.', "index\tsentence", "7\tA cat"),
    "SST-2": ("sentence\tlabel", 'a "b \t1', "index\tsentence", "0\tA cat"),
    "STS-B": (
        "index\tgenre\tsentence1\tsentence2\tscore",
        "0\tx\ta cat\tthe cat\t4.25",
        "index\tgenre\tsentence1\tsentence2",
        "0\tx\ta cat\tthe cat",
    ),
    "QQP": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "9\t1\t2\ta cat\tthe cat\t0",
        "id\tquestion1\tquestion2",
        "3\ta cat\tthe cat",
    ),
    "QNLI": (
        "index\tquestion\tsentence\tlabel",
        "0\ta cat\tthe cat\tnot_entailment",
        "index\tquestion\tsentence",
        "3\ta cat\tthe cat",
    ),
    "RTE": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta cat\tthe cat\tentailment",
        "index\tsentence1\tsentence2",
        "3\ta cat\tthe cat",
    ),
    "WNLI": (
        "index\tsentence1\tsentence2\tlabel",
        "0\ta cat\tthe cat\t1",
        "index\tsentence1\tsentence2",
        "3\ta cat\tthe cat",
    ),
}
READ = {
    "CoLA": ('He "sat.', None, "1"),
    "SST-2": ('a "b ', None, "1"),
    "STS-B": ("a cat", "the cat", 4.25),
    "QQP": ("a cat", "the cat", "0"),
    "QNLI": ("a cat", "the cat", "not_entailment"),
    "RTE": ("a cat", "the cat", "entailment"),
    "WNLI": ("a cat", "the cat", "1"),
}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_glue_layouts_are_read(folder, name, ending):
    header, line, test_header, test_line = LAYOUTS[name]
    lines = ([header] if header else []) + [line, line]
    content = "\ufeff" + ending.join(lines) + ending
    (folder / "train.tsv").write_bytes(content.encode())
    (folder / "test.tsv").write_bytes(f"{test_header}{ending}{test_line}".encode())
    this = task(folder, name)
    examples = this.read("train")
    assert len(examples) == 2
    assert examples[0][:3] == READ[name]
    (example,) = this.read("test")
    assert example.label is None
    assert example.text_b == (READ[name][1] and "the cat")
    assert example.index == test_line.split("\t")[0]


@pytest.mark.slow
def test_mnli_has_two_of_each_and_ax_its_answers(folder, untraced):
    header = "index\tsentence1\tsentence2\tlabel1\tgold_label"
    for name in ("train", "dev_matched", "dev_mismatched"):
        write_lines(
            folder / f"{name}.tsv",
            [header]
            + [
                f"{i}\ta cat\tthe dog\tneutral\t{label}"
                for i, label in enumerate(
                    ["neutral", "entailment", "contradiction", "neutral"] * 4
                )
            ],
        )
    for name in ("test_matched", "test_mismatched", "diagnostic"):
        write_lines(
            folder / f"{name}.tsv",
            ["index\tsentence1\tsentence2", "5\ta cat\tthe dog", "6\tred\tblue"],
        )
    run(folder, "MNLI", do_train=True, do_eval=True, do_predict=True)
    output = folder / "output"
    values = results(folder)
    assert {"eval_accuracy", "eval_dev_mismatched_accuracy"} <= values.keys()
    for name in ("test_results.tsv", "test_results_test_mismatched.tsv"):
        assert len((output / name).read_text().splitlines()[0].split("\t")) == 3
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv"):
        lines = (output / name).read_text().splitlines()
        assert [line.split("\t")[0] for line in lines] == ["index", "5", "6"]
        assert lines[1].split("\t")[1] in ("neutral", "entailment", "contradiction")
    run(
        folder,
        "AX",
        do_predict=True,
        init_checkpoint=str(output),
        output_dir=str(folder / "ax"),
    )
    assert len((folder / "ax" / "AX.tsv").read_text().splitlines()) == 3
    with pytest.raises(UserError, match="has only a test set"):
        run(folder, "AX", do_train=True)


def test_xnli_takes_one_language(folder):
    (folder / "multinli").mkdir()
    write_lines(
        folder / "multinli" / "multinli.train.zh.tsv",
        ["premise\thypo\tlabel", "a cat\tthe dog\tcontradictory"],
    )
    write_lines(
        folder / "xnli.dev.tsv",
        [
            "language\tgold_label\tsentence1\tsentence2",
            "ar\tneutral\ta\tb",
            "zh\tentailment\tc\td",
        ],
    )
    this = task(folder, "XNLI")
    assert this.read("train")[0].label == "contradiction"
    assert [example.text_a for example in this.read("dev")] == ["c"]


# --- Your own files ------------------------------------------------------------------


def custom(folder, ending, labels, number=24):
    """train, dev and test of one format; the test set has no labels."""
    rng = np.random.default_rng(0)
    for split in ("train", "dev", "test"):
        rows = [(text(rng), labels[i % len(labels)]) for i in range(number)]
        if split == "test":
            rows = [(a,) for a, _ in rows]
        if ending == "jsonl":
            names = ("text", "label")
            lines = [json.dumps(dict(zip(names, row, strict=False))) for row in rows]
        else:
            separator = "\t" if ending == "tsv" else ","
            lines = [separator.join(("text", "label")[: len(rows[0])])]
            lines += [separator.join(map(str, row)) for row in rows]
        write_lines(folder / f"{split}.{ending}", lines)
    return {f"{split}_file": f"{split}.{ending}" for split in ("train", "dev", "test")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "kind", "labels"),
    [
        ("tsv", "single", ["yes", "no", "perhaps"]),
        ("csv", "number", [0.5, 1.5, -2.0]),
        ("jsonl", "several", [["x"], ["x", "y"], []]),
    ],
)
def test_own_files_of_every_kind(folder, ending, kind, labels):
    files = custom(folder, ending, labels)
    run(
        folder,
        "custom",
        **files,
        label_kind=kind,
        do_train=True,
        do_eval=True,
        do_predict=True,
    )
    values = results(folder)
    lines = (folder / "output" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    assert len(answers) == 24
    table = (folder / "output" / "test_results.tsv").read_text().splitlines()
    if kind == "single":
        assert {"eval_accuracy", "eval_f1_macro"} <= values.keys()
        for answer, line in zip(answers, table, strict=True):
            chances = answer["probabilities"]
            assert list(chances) == ["no", "perhaps", "yes"]
            assert answer["predicted"] == max(chances, key=chances.get)
            assert line == "\t".join(map(str, chances.values()))
    elif kind == "number":
        assert {"eval_spearman", "eval_mean_squared_error"} <= values.keys()
        assert [str(a["predicted"]) for a in answers] == table
    else:
        assert {"eval_f1_micro", "eval_exact_match"} <= values.keys()
        for answer in answers:
            chosen = [k for k, p in answer["probabilities"].items() if p > 0.5]
            assert answer["predicted"] == chosen
    # The labels are kept with the model: it answers without the training set.
    (folder / files["train_file"]).unlink()
    before = (folder / "output" / "predictions.jsonl").read_text()
    run(folder, "custom", **files, label_kind=kind, do_predict=True)
    assert (folder / "output" / "predictions.jsonl").read_text() == before


def test_csv_quotes_hold_commas_and_line_ends(folder):
    (folder / "train.csv").write_text(
        'text,label\n"a ""red"" cat,\nsat",x\nthe dog,y\n'
    )
    this = task(folder, "custom", train_file="train.csv")
    assert [example.text_a for example in this.read("train")] == [
        'a "red" cat,\nsat',
        "the dog",
    ]


@pytest.mark.slow
def test_scores_are_those_of_the_answers(folder, untraced):
    """Regardless of how they are computed: from the files alone."""
    files = custom(folder, "tsv", ["0", "1", "1"])
    files["test_file"] = files["dev_file"]
    run(folder, "custom", **files, do_train=True, do_eval=True, do_predict=True)
    lines = (folder / "output" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in lines]
    right = np.mean([a["gold"] == a["predicted"] for a in answers])
    assert results(folder)["eval_accuracy"] == pytest.approx(right)
    loss = -np.mean([np.log(a["probabilities"][a["gold"]]) for a in answers])
    assert results(folder)["eval_loss"] == pytest.approx(loss, abs=1e-5)
    page = (folder / "output" / "mistakes.html").read_text()
    wrong = [a for a in answers if a["gold"] != a["predicted"]]
    assert f"All {len(wrong)} mistakes in 24 answers" in page
    assert all(a["text"] in page for a in wrong)
    for a in wrong:
        odds = sorted(((p, label) for label, p in a["probabilities"].items()))[::-1]
        assert "<br>".join(f"{p:.3f} {label}" for p, label in odds) in page


@pytest.mark.slow
def test_labels_and_text_are_held_to_those_of_the_training(folder, untraced):
    files = custom(folder, "tsv", ["pos", "neg"])
    run(folder, "custom", **files, do_train=True)
    predict = {**files, "do_predict": True}
    with pytest.raises(
        UserError, match="trained for the labels neg, pos in this order"
    ):
        run(folder, "custom", **predict, labels=["pos", "neg"])
    with pytest.raises(UserError, match="; pass --do_lower_case=true$"):
        run(folder, "custom", **predict, do_lower_case=False, strip_accents=True)
    (folder / "other.txt").write_text("\n".join([*SPECIAL_TOKENS, *WORDS[::-1]]) + "\n")
    with pytest.raises(UserError, match="trained with another vocabulary"):
        run(folder, "custom", **predict, vocab_file=str(folder / "other.txt"))
    # Elsewhere the labels are found beside the weights, and nothing else is accepted.
    elsewhere = {
        "init_checkpoint": str(folder / "output"),
        "output_dir": str(folder / "elsewhere"),
    }
    run(folder, "custom", **predict, **elsewhere)
    for name in ("test_results.tsv", "predictions.jsonl"):
        assert (folder / "elsewhere" / name).exists()
    with pytest.raises(UserError, match="txt: token 5 is 'blue', but 'the' in"):
        run(
            folder,
            "custom",
            **predict,
            **elsewhere,
            vocab_file=str(folder / "other.txt"),
        )
    with pytest.raises(UserError, match="--init_encoder_only needs --do_train"):
        run(folder, "custom", **predict, **elsewhere, init_encoder_only=True)


@pytest.mark.slow
def test_same_command_goes_on_and_a_search_knows_what_it_did(folder, untraced, capsys):
    files = custom(folder, "tsv", ["pos", "neg"])
    run(folder, "custom", **files, do_train=True)
    run(folder, "custom", **files, do_train=True)
    assert "already finished: 6 updates" in capsys.readouterr().out
    search = {"num_trials": 2, "output_dir": str(folder / "search"), "do_train": True}
    run(folder, "custom", **files, **search)
    capsys.readouterr()
    run(folder, "custom", **files, **search)
    assert capsys.readouterr().out.count("already finished: accuracy") == 2


@pytest.mark.slow
def test_labels_of_a_hugging_face_head_are_held_to(folder, untraced, capsys):
    files = custom(folder, "tsv", ["yes", "no"])
    run(folder, "custom", do_train=True, **files)
    said = capsys.readouterr().out
    assert "no --init_checkpoint: training starts from random weights" in said
    assert "; 12 labelled no; 12 labelled yes" in said
    convert_checkpoint.main(
        convert_checkpoint.Options(
            input=[str(folder / "output")],
            layout="hugging_face",
            output_dir=str(folder / "theirs"),
        )
    )
    given = {
        "init_checkpoint": str(folder / "theirs"),
        "output_dir": str(folder / "other"),
        "do_eval": True,
        **files,
    }
    (folder / "theirs" / "task.json").unlink(missing_ok=True)
    run(folder, "custom", labels=["no", "yes"], **given)
    with pytest.raises(UserError, match="trained for the labels no, yes in this order"):
        run(folder, "custom", labels=["yes", "no"], **given)
    # An encoder alone answers nothing.
    trained = checkpoint.resolve(str(folder / "output"))
    encoder = {
        name: value
        for name, value in checkpoint.read(trained).items()
        if name.startswith("bert/") and "adam" not in name
    }
    checkpoint.save(
        str(folder / "encoder"),
        1,
        {k: tf.constant(v) for k, v in encoder.items()},
        keep=1,
    )
    with pytest.raises(UserError, match="an encoder without this head cannot answer"):
        run(
            folder,
            "custom",
            labels=["no", "yes"],
            **given | {"init_checkpoint": str(folder / "encoder")},
        )


def test_rows_that_training_never_reached_may_have_new_tokens(folder):
    unused = [f"[unused{i}]" for i in range(3)]
    for name, new in (("model", unused), (".", ["cow", unused[1], "hen", "wren"])):
        (folder / name).mkdir(exist_ok=True)
        write_lines(folder / name / "vocab.txt", [*SPECIAL_TOKENS, *WORDS, *new])
    tensors = checkpoint.read(str(GOLDEN / "checkpoint" / "bert_model.ckpt"))
    prefix = checkpoint.save(str(folder / "model"), 1, tensors, keep=1)
    given = options(folder, "custom", do_train=True, init_checkpoint=prefix)
    assert training_run.make_tokenizer(given).encode("a hen") == [6, 5 + len(WORDS) + 2]
    # Bytes that mark their order are no part of a token; what is packed is not compared.
    beside = folder / "model" / "vocab.txt"
    content = beside.read_bytes()
    for other in (b"\xef\xbb\xbf" + content, gzip.compress(content)):
        beside.write_bytes(other)
        training_run.make_tokenizer(given)
    beside.write_bytes(content)
    write_lines(folder / "vocab.txt", [*SPECIAL_TOKENS, *WORDS[:-1], "cow", *unused])
    with pytest.raises(UserError, match="vocab.txt: token 16 is 'cow', but"):
        training_run.make_tokenizer(given)


@pytest.mark.slow
def test_answers_to_a_test_set_name_their_lines(folder, untraced):
    """Labels are optional there, some or all."""
    files = custom(folder, "jsonl", ["x", "y"])
    lines = [{"text": "a", "id": 7, "label": ""}, {"text": "the", "id": "h-8"}]
    lines += [{"text": "cat", "label": "y"}]
    write_lines(folder / "rows.jsonl", map(json.dumps, lines))
    run(
        folder,
        "custom",
        **files | {"test_file": "rows.jsonl"},
        do_train=True,
        do_predict=True,
    )
    written = (folder / "output" / "predictions.jsonl").read_text().splitlines()
    answers = [json.loads(line) for line in written]
    assert [answer["index"] for answer in answers] == ["7", "h-8", "2"]
    assert [answer.get("gold") for answer in answers] == [None, None, "y"]


@pytest.mark.slow
def test_other_order_of_labels_is_another_run(folder, untraced):
    files = custom(folder, "tsv", ["pos", "neg"])
    run(folder, "custom", **files, do_train=True, labels=["pos", "neg"])
    with pytest.raises(UserError, match="labels was"):
        run(folder, "custom", **files, do_train=True, labels=["neg", "pos"])


def test_the_page_shows_all_labels_that_are_true_or_predicted(folder):
    names = ["a", "b", "c", "d", "e", "f"]
    (folder / "dev.jsonl").write_text('{"text": "cat", "label": ["e", "f"]}\n')
    this = task(folder, "custom", label_kind="several", labels=names)
    this.data = this.data._replace(
        dev={"dev": glue.Table("dev.jsonl", "text", None, "label")}
    )
    outputs = {"logits": np.array([[9, 8, 7, 6, 5, -9]], np.float32)}
    predictions = Predictions("dev", this.read("dev"), [], np.arange(1), outputs)
    page = mistakes.render([mistakes.Page("dev", {}, this.judge(predictions))], "")
    for name, logit in zip(names, outputs["logits"][0], strict=True):
        assert f"{1 / (1 + np.exp(-float(logit))):.3f} {name}" in page
    assert "All 1 mistakes in 1 answers" in page


def test_the_page_has_headings_where_it_shows_several_sets():
    pages = [mistakes.Page(name, {"loss": 0.5}, []) for name in ("dev", "dev_other")]
    assert "<h2>" not in mistakes.render(pages[:1], "MNLI: dev")
    both = mistakes.render(pages, "MNLI: dev, dev_other")
    assert "<h2>dev</h2>" in both and "<h2>dev_other</h2>" in both


def test_right_answers_of_several_labels_are_no_mistakes(folder):
    (folder / "dev.jsonl").write_text('{"text": "a", "label": ["y", "x"]}\n' * 4)
    this = task(folder, "custom", label_kind="several", labels=["x", "y"])
    this.data = this.data._replace(
        dev={"dev": glue.Table("dev.jsonl", "text", None, "label")}
    )
    outputs = {"logits": np.ones((4, 2), np.float32)}
    predictions = Predictions("dev", this.read("dev"), [], np.arange(4), outputs)
    for judgement in this.judge(predictions):
        assert judgement.gold == judgement.predicted == "x, y"
    assert this.score(predictions)["exact_match"] == 1.0


def test_a_users_file_is_not_replaced(folder):
    write_lines(folder / "predictions.jsonl", ['{"text": "a"}'])
    changes = {"test_file": "predictions.jsonl", "output_dir": str(folder)}
    with pytest.raises(UserError, match="predictions.jsonl: is also an input"):
        run(folder, "custom", do_predict=True, **changes)


def test_numbers_beyond_the_scale_of_the_task_are_refused(folder):
    write_lines(folder / "train.tsv", ["sentence1\tsentence2\tscore", "a\tb\t5.1"])
    with pytest.raises(
        UserError, match="train.tsv:2: label '5.1' is not a number from 0 to"
    ):
        task(folder, "STS-B").read("train")


@pytest.mark.parametrize(
    ("ending", "label", "shown"),
    [
        ("jsonl", "9" * 400, "9" * 40),
        ("jsonl", "true", "True"),
        ("jsonl", "[1.5]", r"\[1.5\]"),
        ("tsv", "1_000", "'1_000'"),
        ("tsv", "١٢", "'١٢'"),
        ("tsv", "1,5", "'1,5'"),
        ("tsv", "inf", "'inf'"),
        ("tsv", "", "''"),
    ],
)
def test_what_only_python_takes_for_a_number_is_refused(folder, ending, label, shown):
    content = (
        f'{{"text": "a", "label": {label}}}' if ending == "jsonl" else f"a\t{label}"
    )
    header = [] if ending == "jsonl" else ["text\tlabel"]
    write_lines(folder / f"train.{ending}", [*header, content])
    this = task(folder, "custom", label_kind="number", train_file=f"train.{ending}")
    allowed = "within the range of float32"
    message = rf"train.{ending}:\d: label {shown} is not a number {allowed}$"
    with pytest.raises(UserError, match=message):
        this.read("train")


def test_numbers_as_files_have_them(folder):
    written = ["1", "-1.50", " +.5 ", "2.", "1e3", "1E-2"]
    write_lines(folder / "train.tsv", ["text\tlabel", *(f"a\t{x}" for x in written)])
    this = task(folder, "custom", label_kind="number")
    assert [e.label for e in this.read("train")] == [1, -1.5, 0.5, 2, 1000, 0.01]


@pytest.mark.parametrize("kind", ["single", "several"])
def test_the_work_for_a_text_does_not_grow_with_the_number_of_labels(folder, kind):
    compared = 0

    class Label(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            nonlocal compared
            compared += 1
            return super().__eq__(other)

    write_lines(folder / "train.jsonl", ['{"text": "a", "label": "l299"}'] * 10)
    labels = [Label(f"l{i}") for i in range(300)]
    changes = {"labels": labels, "label_kind": kind, "train_file": "train.jsonl"}
    this = task(folder, "custom", **changes)
    compared = 0
    gold = this._gold(this.read("train"))
    assert compared < 100
    assert gold.tolist() == [299 if kind == "single" else [0] * 299 + [1]] * 10


def test_many_labels_make_no_long_refusal(folder):
    this = task(folder, "custom", labels=[f"l{i}" for i in range(30_000)])
    with pytest.raises(
        UserError, match="trained for the labels m0, .*, m19, .* in"
    ) as e:
        this.restore({"labels": [f"m{i}" for i in range(30_000)]})
    assert len(str(e.value)) < 400


def test_several_labels_that_are_always_the_same_are_trivial(folder):
    """No label is in half of the texts, and none at all is not the best answer."""
    labels = [*"aaaabbbccd"]
    lines = [json.dumps({"text": "a", "label": [label]}) for label in labels]
    write_lines(folder / "train.jsonl", lines)
    this = task(folder, "custom", label_kind="several", train_file="train.jsonl")
    # With a and b 7 are found, 13 are not, 3 are missed.
    assert this.trivial_score(this.read("train")) == pytest.approx(
        7 / (7 + (13 + 3) / 2)
    )
    outputs = {"logits": np.full((10, 4), -1, np.float32)}
    predictions = Predictions("dev", this.read("train"), [], np.arange(10), outputs)
    assert {judgement.predicted for judgement in this.judge(predictions)} == {
        "(no label)"
    }


def test_an_export_knows_the_columns_of_its_training(folder):
    this = task(folder, "custom", text_a_column="text", text_b_column="text_b")
    columns = {"text_a": "text", "text_b": "text_b"}
    assert this.description()["columns"] == columns
    assert task(folder, "SST-2").description()["columns"] == {"text": "sentence"}


@pytest.mark.slow
def test_several_labels_are_held_to(folder, untraced):
    files = custom(folder, "jsonl", [["x"], ["x", "y"], []])
    run(folder, "custom", **files, do_train=True, label_kind="several")
    with pytest.raises(UserError, match="trained with another --label_kind"):
        run(folder, "custom", **files, do_eval=True)


def test_bad_lines_can_be_left_out_and_are_named(folder, caplog):
    (folder / "train.tsv").write_text("text\tlabel\na\tx\nbroken\nb\ty\n")
    this = task(folder, "custom", skip_bad_lines=True)
    assert len(this.read("train")) == 2
    assert "skipped 1 lines that do not have 2 columns: 3" in caplog.text


@pytest.mark.slow
def test_text_that_the_vocabulary_lacks_is_named(folder, untraced, capsys):
    files = custom(folder, "tsv", ["0", "1"])
    text = (folder / "train.tsv").read_text()
    (folder / "train.tsv").write_text(
        text.replace("cat", "한국").replace("the", "서울")
    )
    run(folder, "custom", **files, do_train=True, do_eval=True)
    train, dev = re.findall("(?:train|dev): 24 examples.*", capsys.readouterr().out)
    assert "% of the tokens are [UNK]: check --vocab_file, --do_lower_case" in train
    assert "[UNK]" not in dev


@pytest.mark.slow
def test_one_answer_to_everything_is_named(folder, untraced, capsys):
    files = custom(folder, "tsv", ["0", "1"])
    lines = (folder / "dev.tsv").read_text().splitlines()
    (folder / "dev.tsv").write_text("\n".join([*lines, *["a\t1"] * 300]) + "\n")
    run(folder, "custom", **files, do_train=True, do_eval=True, learning_rate=[1e-9])
    said = capsys.readouterr().out
    trivial = (300 + sum(line.endswith("\t1") for line in lines)) / (299 + len(lines))
    assert f"is no better than a constant answer ({trivial:.4f})" in said


@pytest.mark.slow
def test_cut_texts_are_counted(folder, untraced, capsys):
    files = custom(folder, "tsv", ["0", "1"])
    run(folder, "custom", **files, do_train=True, max_seq_length=6)
    assert "were cut to --max_seq_length" in capsys.readouterr().out


# --- Refusals ------------------------------------------------------------------------

GOOD = "text\tlabel\na cat\tx\nthe dog\ty\n" * 1


@pytest.mark.parametrize(
    ("content", "changes", "message"),
    [
        ("", {}, "train.tsv: the file is empty"),
        ("text\tlabel\n", {}, "train.tsv: contains no examples"),
        ("a\tb\nc\td\n", {}, "train.tsv:1: has no column 'label', only a, b; check"),
        ("text\tlabel\na\n", {}, "train.tsv:2: 1 columns, but the first line has 2"),
        (
            "text\tlabel\na\tx\tz\n",
            {},
            "train.tsv:2: 3 columns, but the first line has 2",
        ),
        ("text\ttext\na\tx\n", {}, "train.tsv:1: 1 columns have the same name"),
        ("text\tlabel\na\tx\nb\tx\n", {}, "all labels are ['x']"),
        ("text\tlabel\na\t\nb\tx\n", {}, "train.tsv:2: has no label; add one"),
        (GOOD, {"labels": ["x", "z"]}, "train.tsv:3: label 'y' is not one of x, z"),
        (GOOD, {"label_kind": "number"}, "train.tsv:2: label 'x' is not a number"),
        (
            "text\tlabel\na\tnan\n",
            {"label_kind": "number"},
            "train.tsv:2: label 'nan' is not a number",
        ),
        (
            "text\tlabel\na\t1e300\n",
            {"label_kind": "number"},
            "train.tsv:2: label '1e300' is not a number within the range of float32",
        ),
        (GOOD, {"train_file": "none.tsv"}, "none.tsv"),
        (GOOD, {"text_b_column": "other"}, "train.tsv:1: has no column 'other'"),
        (b"text\tlabel\na\xff\tx\n", {}, "train.tsv:2: not UTF-8"),
        ('{"text": "a", "label": "x"}\n{"te', {}, "train.jsonl:2: not JSON"),
        ("[1, 2]\n", {}, "train.jsonl:1: not a JSON object"),
        ('{"text": 3, "label": "x"}\n', {}, "train.jsonl:1: 'text' is 3, not text"),
        (
            '{"text": "a", "label": {"x": 1}}\n',
            {"label_kind": "several"},
            "train.jsonl:1: {'x': 1} is neither a list of labels nor text",
        ),
        (
            '{"text": "a", "label": true}\n',
            {},
            "train.jsonl:1: label True is neither text nor a whole number",
        ),
        (
            '{"text": "a", "label": null}\n',
            {},
            "train.jsonl:1: label None is neither text nor a whole number",
        ),
        (GOOD, {"labels": ["x", "y", "x"]}, "--labels=x,y,x: empty or repeated"),
        (GOOD, {"label_separator": ""}, "--label_separator: must not be empty"),
        (
            GOOD,
            {"label_separator": ";"},
            "--label_separator needs --label_kind=several",
        ),
        (
            GOOD,
            {"label_kind": "number", "labels": ["0", "1"]},
            "--labels does not go with --label_kind=number",
        ),
        (GOOD, {"task_name": "AX", "do_eval": True}, "has only a test set"),
        (GOOD, {"seed": 2**31 - 1, "num_trials": 2}, "must be below 2147483648"),
        (
            'text,label\nred,y\n"a cat,x\nb,y\n',
            {},
            "train.csv:3: the row that begins here is not CSV",
        ),
        ("text,label\na\rb,y\n", {}, "train.csv:2: a carriage return within a line"),
        (
            GOOD,
            {"task_name": "CoLA", "labels": ["1", "0"]},
            "--labels is for --task_name=custom only",
        ),
        (GOOD, {"task_name": "sst"}, "--task_name=sst: not one of cola"),
        (GOOD, {"max_seq_length": 2}, "--max_seq_length=2: must be at least 3"),
        (
            GOOD,
            {"do_train": False, "do_eval": True},
            "no labels are known, because",
        ),
    ],
)
def test_bad_input_is_refused_in_one_line(folder, content, changes, message):
    ending = "tsv"
    if isinstance(content, str) and content.startswith(("{", "[")):
        ending = "jsonl"
    elif isinstance(content, str) and content.startswith("text,"):
        ending = "csv"
    content = content if isinstance(content, bytes) else content.encode()
    (folder / f"train.{ending}").write_bytes(content)
    (folder / "dev.tsv").write_text(GOOD)
    output = folder / "output"
    output.mkdir()
    (output / "eval_results.txt").write_text("of an earlier run\n")
    changes = {"task_name": "custom", "train_file": f"train.{ending}"} | changes
    changes.setdefault("do_train", True)
    with pytest.raises((UserError, OSError)) as error:
        run(folder, **changes)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert (output / "eval_results.txt").read_text() == "of an earlier run\n"
    assert not list(output.glob("model.ckpt*"))
