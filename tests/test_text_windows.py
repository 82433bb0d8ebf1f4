"""--doc_stride of run_classifier.py: long texts in windows, whose logits are pooled."""

import numpy as np
import pytest

import run_classifier
from training.backend import tf
from errors import UserError
from tests import classifier, jobs, tiny
from text.graphs import windows_graph
from text.instances import text_windows

# After fewer epochs, a model answers alike whichever windows it reads.
LONG = {"max_seq_length": 8, "doc_stride": 4, "num_train_epochs": [6.0]}


@pytest.fixture
def folder(tmp_path):
    """Texts of up to 23 words; one word, which is seldom in the first window, decides."""
    tiny.write(tmp_path, classifier.WORDS, classifier.TINY)
    rng = np.random.default_rng(0)
    for split in ("train", "dev", "test"):
        lines = ["text\tlabel"]
        for number in range(40):
            words = rng.choice(classifier.WORDS[:8], size=rng.integers(1, 24)).tolist()
            words.insert(rng.integers(0, len(words) + 1), ("red", "blue")[number % 2])
            lines.append(f"{' '.join(words)}\t{'xy'[number % 2]}")
        classifier.write_lines(tmp_path / f"{split}.tsv", lines)
    return tmp_path


def run(folder, **changes):
    classifier.run(folder, "custom", **LONG | changes)


def test_windows_cover_a_text_and_overlap():
    found = text_windows.windows(list(range(10)), 4, 3)
    assert found == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert text_windows.windows([1, 2], 4, 3) == [[1, 2]]
    assert text_windows.windows([], 4, 3) == [[]]
    assert text_windows.windows(list(range(5)), 4, 3) == [[0, 1, 2, 3], [3, 4]]


def test_logits_of_a_text_are_pooled():
    values = np.array([[1.0, 5.0], [3.0, 0.0], [2.0, 2.0], [0.0, 4.0]], np.float32)
    texts = np.array([0, 0, 1, 1])
    for pooling, expected in (
        ("mean", [[2.0, 2.5], [1.0, 3.0]]),
        ("max", [[3.0, 5.0], [2.0, 4.0]]),
        ("first", [[1.0, 5.0], [2.0, 2.0]]),
    ):
        assert text_windows.pool(values, texts, pooling).tolist() == expected


@pytest.mark.parametrize("most", [None, 1])
def test_a_graph_reads_the_same_windows(most):
    rng = np.random.default_rng(1)
    texts = [rng.integers(0, 9, n).tolist() for n in (0, 3, 4, 5, 12, 0, 17)]
    expected = [
        (text, window)
        for text, ids in enumerate(texts)
        for window in text_windows.windows(ids, 4, 3)[:most]
    ]
    ragged = tf.ragged.constant(texts, tf.int32)
    found, numbers = windows_graph.windows(ragged, 4, 3, most)
    assert list(zip(numbers.numpy(), found.to_list(), strict=True)) == expected
    values = rng.normal(size=(len(expected), 2)).astype(np.float32)
    for pooling in text_windows.POOLINGS if most else ("mean", "max"):
        np.testing.assert_allclose(
            windows_graph.pool(values, numbers, len(texts), pooling),
            text_windows.pool(values, numbers.numpy(), pooling),
            rtol=1e-6,
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize("pooling", ["first", "mean"])
def test_the_whole_text_answers_alone_and_in_an_export(
    folder, pooling, capsys, untraced
):
    changes = {"window_pooling": pooling, "do_predict": True, "do_export": True}
    run(folder, do_train=True, do_eval=True, **changes)
    said = capsys.readouterr().out
    assert "are read in several windows" in said
    assert len(jobs.predictions(folder)) == 40  # one answer for a text
    description = jobs.check_export(folder)
    assert description["doc_stride"] == 4
    assert description["window_pooling"] == pooling


@pytest.mark.exhaustive
def test_a_killed_run_goes_on_and_a_model_remembers_its_windows(
    folder, tmp_path, capsys, untraced
):
    def classify(source, **changes):
        own = {"task_name": "custom", "data_dir": str(folder), **LONG}
        own |= {"num_train_epochs": [5.0], "save_checkpoints_steps": 20}
        jobs.run(run_classifier, jobs.flags(source, **own | changes))

    classify(folder, do_train=True)
    other = tmp_path / "other"
    other.mkdir()
    jobs.check_goes_on(classify, folder, other, capsys)
    with pytest.raises(
        UserError, match="on windows of long texts; pass --doc_stride=4"
    ):
        classify(folder, do_eval=True, doc_stride=None)
    with pytest.raises(UserError, match="pass --doc_stride=4 --window_pooling=mean"):
        classify(folder, do_eval=True, window_pooling="max")
    student = {"distill_from": str(folder / "output"), "doc_stride": None}
    with pytest.raises(UserError, match="in windows, which a teacher cannot"):
        classify(folder, do_train=True, output_dir=str(tmp_path / "student"), **student)
    with pytest.raises(UserError, match="doc_stride was 4 and is now 3"):
        classify(folder, do_train=True, doc_stride=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"doc_stride": 6}, "doc_stride=6: must be below 6, the tokens of a window"),
        ({"doc_stride": 0}, "doc_stride=0: must be at least 1"),
        ({"text_b_column": "b"}, "for single texts, and this task has pairs"),
        (
            {"doc_stride": None, "window_pooling": "max"},
            "no effect without --doc_stride",
        ),
    ],
)
def test_windows_that_cannot_be_are_refused(folder, changes, message):
    with pytest.raises(UserError, match=message):
        run(folder, do_train=True, **changes)
