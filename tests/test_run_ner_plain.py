"""run_ner.py with tags that mark no entities, and with characters, from file to answer."""

import json
import random

import pytest

import run_ner
from training.run.settle import TrainableModel
from errors import UserError
from serving import predictor
from tests import jobs
from tests.jobs import results
from tests.ner import flags, run, write_files

TAGS = {"P": "PROPN", "L": "NOUN", "b": "VERB"}  # of words, by their first letter


def trees(count, seed):
    """CoNLL-U in which the first letter of a word tells its tag."""
    rng, lines = random.Random(seed), []
    for number in range(count):
        lines.append(f"# sent_id = {number}")
        words = [
            rng.choice("PLb") + "".join(rng.choices("ab", k=rng.randint(0, 3)))
            for _ in range(rng.randint(1, 5))
        ]
        for place, word in enumerate(words, start=1):
            if rng.random() < 0.2:
                lines.append("\t".join([f"{place}-{place + 1}", "ab", *"________"]))
            lines.append("\t".join([str(place), word, "_", TAGS[word[0]], *"______"]))
        lines += ["\t".join([f"{len(words)}.1", "L", "_", "NOUN", *"______"]), ""]
    return "".join(f"{line}\n" for line in lines)


def characters(count, seed):
    """One character a line, as in KLUE-NER: P begins a name, which may have a space."""
    rng, lines = random.Random(seed), ["## 토큰 구분자 : \\n"]
    for number in range(count):
        lines.append(f"## {number}\t<P:PS>")
        for _ in range(rng.randint(1, 3)):
            lines += ["P\tB-PS", *rng.choice([[], [" \tI-PS", "L\tI-PS"]])]
            lines += [" \tO", *[f"{rng.choice('ab')}\tO"] * rng.randint(1, 2)]
        lines.append("")
    return "".join(f"{line}\n" for line in lines)


def write(folder, make, suffix):
    write_files(folder)
    for split, count, seed in (("train", 48, 1), ("dev", 20, 2), ("test", 10, 3)):
        (folder / f"{split}{suffix}").write_text(make(count, seed))
    return {f"{split}_file": f"{split}{suffix}" for split in ("train", "dev", "test")}


WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}
TREES = {"tag_column": "upos", "num_train_epochs": [4.0]}


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """A folder after a whole run on trees, its files, and what the run said."""
    folder = tmp_path_factory.mktemp("trees")
    files = write(folder, trees, ".conllu")
    # Two words of the dev set have a tag that the training set lacks.
    text = (folder / "dev.conllu").read_text()
    (folder / "dev.conllu").write_text(text.replace("\tVERB\t", "\tAUX\t", 2))
    with jobs.untraced(), pytest.MonkeyPatch.context() as patch:
        said = []
        patch.setattr("builtins.print", lambda *words, **_: said.append(str(words)))
        run(folder, **WHOLE, **files, **TREES)
    return folder, files, "\n".join(said)


@pytest.mark.exhaustive
def test_from_trees_to_tags_in_their_place(tagged):
    folder, _, _ = tagged
    found = results(folder)
    assert set(found) == {
        *("eval_accuracy", "eval_f1_macro", "eval_loss"),
        *("global_step", "loss"),
    }
    total = sum(line[:1].isdigit() for line in words_of(folder / "dev.conllu"))
    assert found["eval_accuracy"] == pytest.approx(1 - 2 / total)
    assert found["eval_f1_macro"] < 0.8  # AUX is never right
    # All is right, so the predictions are the file.
    before = (folder / "test.conllu").read_text()
    assert (folder / "output" / "predictions.txt").read_text() == before
    page = (folder / "output" / "mistakes.html").read_text()
    assert "Confusion matrix" in page and "<th>AUX</th>" in page
    assert "/AUX" in page and "/VERB" in page  # the worst sentences
    assert "wrong sentences in 20 sentences" in page or "1 wrong sentence in 20" in page
    state = json.loads((folder / "output" / "task.json").read_text())
    assert state["tags"] == ["NOUN", "PROPN", "VERB"]


def words_of(path):
    """The lines of words."""
    lines = path.read_text().splitlines()
    return [line for line in lines if line.partition("\t")[0].isdigit()]


@pytest.mark.exhaustive
def test_the_log_names_the_kind_of_tags_and_what_was_not_learned(tagged):
    folder, _, said = tagged
    assert "words have one of 3 tags that mark no entities (--tag_scheme=none)" in said
    line = (folder / "dev.conllu").read_text().split("\tAUX\t")[0].count("\n") + 1
    assert (
        "; 2 word(s) have a tag that was not learned, the first in "
        f"{folder}/dev.conllu:{line}, and count as mistakes"
    ) in said


@pytest.mark.exhaustive
def test_an_export_answers_with_the_tags_of_the_run(tagged):
    folder, _, _ = tagged
    served = predictor.Predictor(str(folder / "output"))
    rows = [line.split("\t") for line in words_of(folder / "output/predictions.txt")]
    (answer,) = served.predict([{"words": [row[1] for row in rows]}])
    assert answer["tags"] == [row[3] for row in rows]
    assert answer.keys() == {"tags", "probabilities"}
    assert min(answer["probabilities"]) > 0.5


@pytest.mark.exhaustive
def test_evaluation_alone_knows_the_tags(tagged, untraced):
    folder, files, _ = tagged
    trained = results(folder)
    common = {
        **files,
        "init_checkpoint": str(folder / "output"),
        "output_dir": str(folder / "again"),
        "do_eval": True,
    }
    jobs.run(run_ner, flags(folder, **common, tag_column="3"))
    again = (folder / "again" / "eval_results.json").read_text()
    for name in ("eval_accuracy", "eval_f1_macro", "eval_loss"):
        assert json.loads(again)[name] == pytest.approx(trained[name])
    for more, message in (
        (
            {"tag_scheme": "iob2"},
            "--tag_scheme is iob2, but the model was .* with none",
        ),
        ({"entity_types": ["X"]}, "--entity_types is X, but the model was"),
        ({"tag_column": "-1"}, "is CoNLL-U; pass --tag_column=upos or xpos"),
        ({"tag_column": "10"}, "--tag_column=10: .* is CoNLL-U and has 10 columns"),
        (
            {"tag_column": "upos", "word_column": 2},
            "CoNLL-U has its words in the column",
        ),
        ({"tag_column": "1"}, "neither '.*' nor any other tag of the file is one of"),
    ):
        with pytest.raises(UserError, match=message):
            jobs.run(run_ner, flags(folder, **common | {"tag_column": "upos"} | more))


@pytest.mark.exhaustive
def test_entities_of_characters_are_read_and_scored(tmp_path, capsys):
    files = write(tmp_path, characters, ".tsv")
    # A shape for all: it is traced once, and updates are many.
    whole = WHOLE | {"do_export": False, "length_buckets": False}
    run(tmp_path, **whole, **files, num_train_epochs=[40.0])
    found = results(tmp_path)
    assert found["eval_f1_macro"] > 0.9 and found["eval_character_f1_macro"] > 0.9
    said = capsys.readouterr().out
    assert "tokens are spaces, read as [UNK] and not scored" in said
    assert "of the tokens are [UNK]" not in said
    before = (tmp_path / "test.tsv").read_text().splitlines()
    after = (tmp_path / "output" / "predictions.txt").read_text().splitlines()
    assert len(before) == len(after)
    right = [
        new == f"{old}\t{old[2:]}"
        for old, new in zip(before, after, strict=True)
        if "\t" in old and not old.startswith("##")
    ]
    assert sum(right) > 0.9 * len(right)
    comments = [line for line in before if line.startswith("##")]
    assert [line for line in after if line.startswith("##")] == comments
    # From there, pages and predict.py know that a text is to be split into characters.
    assert json.loads((tmp_path / "output/task.json").read_text())["characters"]
    page = (tmp_path / "output" / "mistakes.html").read_text()
    assert "Confusion matrix" in page


def test_a_file_of_two_schemes_is_refused(tmp_path):
    write_files(tmp_path)
    (tmp_path / "train.txt").write_text("Pa B-PER\nb O\n\nb NN\n")
    message = (
        "train.txt:4: 'NN' is not a tag of an entity, but 'B-PER' in line 1 is; fix the "
        "tags or --tag_column, or pass --tag_scheme=none to learn"
    )
    jobs.check_refused(run, tmp_path, message, do_train=True)
    jobs.check_refused(
        run,
        tmp_path,
        "--entity_types has no effect with --tag_scheme=none",
        do_train=True,
        tag_scheme="none",
        entity_types=["PER"],
    )


def test_labels_of_another_program_may_be_any_tags(tmp_path):
    write_files(tmp_path)
    given = run_ner.Options(**flags(tmp_path, do_predict=True))
    tagger = run_ner.make(TrainableModel(given))
    tagger.restore({"head": "tagging", "labels": ["VERB", "ADV", "O"]})
    assert tagger.labels == ["VERB", "ADV", "O"] and tagger.form == "word_tags"
    given = run_ner.Options(**flags(tmp_path, do_predict=True, tag_scheme="none"))
    tagger = run_ner.make(TrainableModel(given))
    tagger.restore({"head": "tagging", "labels": ["B-X", "O"]})
    assert tagger.labels == ["B-X", "O"]
