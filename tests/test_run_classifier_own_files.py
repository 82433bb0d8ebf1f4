"""run_classifier.py on your own files: kinds of labels, columns, answers, the page."""

import gzip
import json
import re

import numpy as np
import pytest

import tests
from training.backend import tf
from training.run import distribution
from training.run.settle import TrainableModel
from training.storage import checkpoint
from training.storage.folder import Folder
from training.storage.source import Source
from errors import UserError
from tests import jobs, tiny
from tests.classifier import TINY, WORDS, custom, options, run, task, write_lines
from tests.conversion import convert
from tests.jobs import results
from text.tasks import glue
from text.tokenizers.vocabulary import SPECIAL_TOKENS
from training.finetuning import mistakes
from training.finetuning.task import Predictions

GOLDEN = tests.GOLDEN


@pytest.fixture
def folder(tmp_path):
    tiny.write(tmp_path, WORDS, TINY)
    return tmp_path


@pytest.mark.parametrize(
    ("ending", "kind", "labels"),
    [
        ("tsv", "single", ["yes", "no", "perhaps"]),
        ("csv", "number", [0.5, 1.5, -2.0]),
        ("jsonl", "several", [["x"], ["x", "y"], []]),
    ],
)
def test_own_files_of_every_kind(folder, ending, kind, labels, untraced):
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
    answers = jobs.predictions(folder)
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


def test_scores_are_those_of_the_answers(folder, untraced):
    """Regardless of how they are computed: from the files alone."""
    files = custom(folder, "tsv", ["0", "1", "1"])
    files["test_file"] = files["dev_file"]
    run(folder, "custom", **files, do_train=True, do_eval=True, do_predict=True)
    answers = jobs.predictions(folder)
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
        lines = (f'<div dir="auto">{p:.3f} {label}</div>' for p, label in odds)
        assert "".join(lines) in page


def test_labels_and_text_are_held_to_those_of_the_training(
    folder, untraced, monkeypatch
):
    files = custom(folder, "tsv", ["pos", "neg"])
    run(folder, "custom", **files, do_train=True)
    predict = {**files, "do_predict": True}
    with pytest.raises(UserError, match="trained for the labels neg, pos in this"):
        run(folder, "custom", **predict, labels=["pos", "neg"])
    with pytest.raises(UserError, match="; pass --do_lower_case=true$"):
        run(folder, "custom", **predict, do_lower_case=False, strip_accents=True)
    (folder / "other.txt").write_text("\n".join([*SPECIAL_TOKENS, *WORDS[::-1]]) + "\n")
    with monkeypatch.context() as patched:
        patched.setattr(distribution, "make", lambda *_, **__: pytest.fail("devices"))
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
    with pytest.raises(
        UserError, match="init_encoder_only has no effect without --do_train"
    ):
        run(folder, "custom", **predict, **elsewhere, init_encoder_only=True)


def test_labels_of_a_hugging_face_head_are_held_to(folder, untraced, capsys):
    files = custom(folder, "tsv", ["yes", "no"])
    run(folder, "custom", do_train=True, **files)
    said = capsys.readouterr().out
    assert "no --init_checkpoint: training starts from random weights" in said
    assert "; 12 labelled no; 12 labelled yes" in said
    convert(folder / "output", folder / "theirs", layout="hugging_face")
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
    trained = Source.open(str(folder / "output")).prefix
    encoder = {
        name: value
        for name, value in Source.open(trained).read().items()
        if name.startswith("bert/") and "adam" not in name
    }
    checkpoint.save(
        Folder.open(str(folder / "encoder")),
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
    tensors = Source.open(str(GOLDEN / "checkpoint" / "bert_model.ckpt")).read()
    prefix = checkpoint.save(Folder.open(str(folder / "model")), 1, tensors, keep=1)
    given = options(folder, "custom", do_train=True, init_checkpoint=prefix)
    assert TrainableModel(given).tokenizer.encode("a hen") == [6, 5 + len(WORDS) + 2]
    # Bytes that mark their order are no part of a token; what is packed is not compared.
    beside = folder / "model" / "vocab.txt"
    content = beside.read_bytes()
    for other in (b"\xef\xbb\xbf" + content, gzip.compress(content)):
        beside.write_bytes(other)
        _ = TrainableModel(given).tokenizer
    beside.write_bytes(content)
    write_lines(folder / "vocab.txt", [*SPECIAL_TOKENS, *WORDS[:-1], "cow", *unused])
    with pytest.raises(UserError, match="vocab.txt: token 16 is 'cow', but"):
        _ = TrainableModel(given).tokenizer


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
    answers = jobs.predictions(folder)
    assert [answer["index"] for answer in answers] == ["7", "h-8", "2"]
    assert [answer.get("gold") for answer in answers] == [None, None, "y"]


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
    assert "<h3>1 mistake in 1 answer</h3>" in page


def test_the_page_has_headings_where_it_shows_several_sets():
    pages = [mistakes.Page(name, {"loss": "0.5"}, []) for name in ("dev", "dev_other")]
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


def test_bad_lines_can_be_left_out_and_are_named(folder, caplog):
    (folder / "train.tsv").write_text("text\tlabel\na\tx\nbroken\nb\ty\n")
    this = task(folder, "custom", skip_bad_lines=True)
    assert len(this.read("train")) == 2
    assert "skipped 1 lines that do not have 2 columns: 3" in caplog.text


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


@pytest.mark.exhaustive
def test_one_answer_to_everything_is_named(folder, untraced, capsys):
    files = custom(folder, "tsv", ["0", "1"])
    lines = (folder / "dev.tsv").read_text().splitlines()
    (folder / "dev.tsv").write_text("\n".join([*lines, *["a\t1"] * 300]) + "\n")
    files |= {"learning_rate": [1e-9], "eval_batch_size": 64}
    run(folder, "custom", **files, do_train=True, do_eval=True)
    said = capsys.readouterr().out
    trivial = (300 + sum(line.endswith("\t1") for line in lines)) / (299 + len(lines))
    assert f"is no better than a constant answer ({trivial:.2%})" in said


def test_cut_texts_are_counted(folder, untraced, capsys):
    files = custom(folder, "tsv", ["0", "1"])
    run(folder, "custom", **files, do_train=True, max_seq_length=6)
    assert "were cut to --max_seq_length" in capsys.readouterr().out
