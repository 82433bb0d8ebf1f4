"""What `predict.py --watch_report` counts, and what its page says of it."""

import json
import math
import re
import signal

import pytest

import predict
from errors import UserError
from serving import drift
from serving import watch as watch_page
from serving.predictor import Predictor
from tests import exports, jobs, ner, squad, vectors
from tests.serving.clients import command, send
from text.tokenizers.table import TokenizerOptions

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a good film"
DEV = ["a film", "good", "a good film", "a film a film a film"] * 50


@pytest.fixture
def folder(tmp_path):
    """An export with a vocabulary, and what was counted in its dev set."""
    folder = tmp_path / "model"
    exports.write(folder, "label")
    vocabulary = folder / "text" / "1" / "assets" / "vocab.txt"
    vocabulary.write_text(WORDS.replace(" ", "\n") + "\n")
    tokenizer = TokenizerOptions().load_tokenizer(str(vocabulary))
    counts = drift.DriftCounts()
    for text in DEV:
        label = "positive" if "good" in text else "negative"
        answer = {"predicted": label, "probabilities": {label: 0.85}}
        counts.add("label", tokenizer, {"text_a": text}, answer)
    described = json.loads((folder / "export.json").read_text())
    exports.describe(folder, described | {drift.DEV_SET: counts.description})
    return folder


def watch(folder, texts):
    """The words of the page about these texts, and of each row their numbers."""
    asked, page = folder.parent / "asked.txt", folder.parent / "watch.html"
    asked.write_text("".join(f"{text}\n" for text in texts))
    predict.main(
        predict.Options(
            model_dir=str(folder),
            input_file=str(asked),
            output_file=str(folder.parent / "answers"),
            watch_report=str(page),
        )
    )
    content = re.sub(r"<style>.*?</style>", "", page.read_text(), flags=re.S)
    rows = re.findall(r"<tr><th>(.*?)</th>(.*?)</tr>", content)
    cells = {
        name: [re.sub(r"<[^>]*>", "", x).strip() for x in re.findall("<td>.*?</td>", r)]
        for name, r in rows
    }
    return re.sub(r"<[^>]*>", " ", content), cells


def test_requests_like_the_dev_set_and_others(folder):
    page, rows = watch(folder, DEV)
    assert "200 requests; dev set: 200 rows" in page
    assert rows["Unknown tokens"] == ["0.00%", "0.00%", ""]
    assert rows["Tokens of a request"] == ["mean 3.0", "mean 3.0", "0.00 (alike)"]
    assert rows["Decisions"][-1] == "0.00 (alike)"
    assert rows["up to 4"] == ["75.0%", "75.0%"]
    # Other words, longer, and of one label.
    page, rows = watch(folder, ["wicked naïve zoo " * 9 + "good"] * 150)
    assert rows["Unknown tokens"] == ["0.00%", "96.43%", ""]
    assert rows["Tokens of a request"][:2] == ["mean 3.0", "mean 28.0"]
    assert rows["Tokens of a request"][2].endswith("(different)")
    assert rows["Decisions"][2].endswith("(different)")
    assert rows["positive"] == ["50.0%", "100.0%"]
    assert not re.search("wicked|naïve|zoo", page)
    page, rows = watch(folder, ["zoo"] * 9)
    assert rows["Decisions"][2].endswith("(few requests)")


def test_the_server_counts_what_it_is_asked_and_not_its_warm_up(folder, tmp_path):
    page = tmp_path / "page.html"
    with command(folder, f"--watch_report={page}") as (process, port, _):
        send(port, {"instances": ["good", "bad", "worse"]})
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "<h2>toy</h2>\n<p>3 requests; dev set: 200 rows</p>" in page.read_text()


def test_counts_continue_at_a_reload_unless_the_dev_set_is_another(folder, tmp_path):
    watch, rows = watch_page.Watch(str(tmp_path / "page.html")), []
    for number in range(3):
        if number == 2:
            described = json.loads((folder / "export.json").read_text())
            described[drift.DEV_SET]["rows"] = 100
            exports.describe(folder, described)
        predictor = Predictor(str(folder))
        watch.add("toy", predictor, str(folder))
        predictor.predict([{"text_a": "good"}] * 2)
        watch.write()
        page = (tmp_path / "page.html").read_text()
        rows.append(re.search(r"<p>(\d+ requests; dev set: \d+ rows)", page)[1])
    assert [each.split()[0] for each in rows] == ["2", "4", "2"]


def test_the_index_of_stability():
    """Half a row more in each bin, so that a label that is new has an index."""
    counts = [{"a": 9, "b": 1}, {"a": 4, "c": 6}]
    expected, asked = (drift.DriftCounts({"rows": 10, "labels": c}) for c in counts)
    shares = zip([9.5, 1.5, 0.5], [4.5, 0.5, 6.5], strict=True)
    index = sum((b - a) / 11.5 * math.log(b / a) for a, b in shares)
    shift = asked.shifts(expected)["labels"]
    assert shift.index == pytest.approx(index)
    assert shift.bins == [("a", 0.9, 0.4), ("b", 0.1, 0.0), ("c", 0.0, 0.6)]


def test_answers_are_given_where_the_page_cannot_be_written(
    folder, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(watch_page, "_SECONDS", -1)
    page = tmp_path / "gone" / "page.html"
    predictor = Predictor(str(folder))
    watch_page.Watch(str(page)).add("toy", predictor, str(folder))
    (answer,) = predictor.predict([{"text_a": "good"}])
    assert answer["predicted"] == "positive"
    assert capsys.readouterr().err.startswith(f"{page}: not written (")


def test_model_that_knows_no_dev_set(tmp_path, predictor):
    folder = exports.write(tmp_path, "label")
    report = str(tmp_path / "page.html")
    with pytest.raises(UserError, match="has no counts of a dev set .* of pre-train"):
        predict.main(predict.Options(model_dir=folder, watch_report=report))
    with pytest.raises(UserError, match="there is no folder"):
        report = str(tmp_path / "gone" / "page.html")
        predict.main(predict.Options(model_dir=folder, watch_report=report))
    with pytest.raises(UserError):
        report = str(tmp_path / "export.json")
        predict.main(predict.Options(model_dir=folder, watch_report=report))


def of_squad(folder):
    content = json.loads((folder / "dev.json").read_text())
    for paragraph in content["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            yield {"question": question["question"], "context": paragraph["context"]}


def of_ner(folder):
    for sentence in (folder / "dev.txt").read_text().split("\n\n"):
        words = [line.split()[0] for line in sentence.splitlines()]
        if words and words != ["-DOCSTART-"]:
            yield {"words": words}


def of_vectors(folder):
    rows = [x.split("\t") for x in (folder / "dev.tsv").read_text().splitlines()[1:]]
    for column in zip(*rows, strict=True):
        yield from ({"text": text} for text in dict.fromkeys(column))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "script, requests_of", [(squad, of_squad), (ner, of_ner), (vectors, of_vectors)]
)
def test_an_evaluation_of_an_earlier_model_counts_its_dev_set(
    script, requests_of, tmp_path, monkeypatch
):
    """Asked the same, the page sees no difference."""
    script.write_files(tmp_path)
    # Exports of these scripts are checked in their own tests.
    monkeypatch.setattr("serving.export._check", lambda product, directory: None)
    with jobs.untraced():
        script.run(tmp_path, do_train=True)
        script.run(tmp_path, do_eval=True, do_export=True)
    page, output = tmp_path / "page.html", str(tmp_path / "output")
    predictor, requests = Predictor(output), [*requests_of(tmp_path)]
    watch = watch_page.Watch(str(page))
    watch.add("model", predictor, output)
    predictor.predict(requests)
    watch.write()
    number = len(requests)
    assert f"<p>{number} requests; dev set: {number} rows</p>" in page.read_text()
    indices = re.findall(r"<td>(-?\d\.\d\d) \((?:alike|few)", page.read_text())
    assert len(indices) == (1 if script is vectors else 3)
    assert {float(index) for index in indices} == {0}


@pytest.mark.parametrize("form", exports.FORMS)
def test_what_forms_decide_are_labels_and_no_texts(form, predictor):
    texts = {"text": "Secret Hamburg", "list": ["Secret", "x"]}
    model = predictor(form)
    request = {name: texts[kind] for name, kind in model.parts.items()}
    (answer,) = model.predict([request])
    verdicts = dict(drift.forms.verdicts(exports.ANSWERS.get(form, form), answer))
    assert not {label for label in verdicts if "Secret" in label}
    assert bool(verdicts) == (form in {"label", "choice", "span", "tags", "word_tags"})
