"""Windows and answers equal to the release's."""

import gzip
import json
import re

import numpy as np
import pytest

import tests
from text.tasks import answer_spans, squad
from text.tasks.answer_spans import AnswerSpan, Document, Lengths
from text.tokenizers.vocabulary import Vocabulary
from text.tokenizers.word_splitter import WordSplitter
from text.tokenizers.wordpiece import WordPiece

GOLDEN = tests.GOLDEN / "squad"
WORD = re.compile("[^ \t\r\n\u202f]+")


def read_golden(name):
    opener = gzip.open if name.endswith(".gz") else open
    with opener(GOLDEN / name, "rt", encoding="utf-8") as file:
        if ".jsonl" in name:
            return [json.loads(line) for line in file]
        return json.load(file)


@pytest.fixture(scope="module")
def uncased():
    return WordPiece(Vocabulary.load(str(GOLDEN / "uncased_vocab.txt")))


def featurized(tokenizer, version, training=False):
    """Ids of the questions, their documents, each row's question, and the rows."""
    lengths = Lengths(max_seq_length=256, doc_stride=96, max_query_length=32)
    ids, documents, numbers, rows = [], [], [], []
    paragraphs = (
        paragraph
        for article in read_golden(f"{version}_dev.json")["data"]
        for paragraph in article["paragraphs"]
    )
    for paragraph in paragraphs:
        document = Document(tokenizer, paragraph["context"])
        for question in paragraph["qas"]:
            answer = None
            if training and not question.get("is_impossible"):
                first = question["answers"][0]
                answer = squad.find_answer(
                    document, tokenizer, first["text"], first["answer_start"]
                )
                assert answer
            ids_of_question = tokenizer.encode(question["question"])
            made = answer_spans.rows(
                document, ids_of_question, tokenizer.vocabulary, lengths, answer
            )
            rows += made
            numbers += [len(documents)] * (len(rows) - len(numbers))
            ids.append(question["id"])
            documents.append(document)
    return ids, documents, numbers, rows


def answered(tokenizer, version):
    """Ids of the questions, their documents, and the answers to the release's logits."""
    ids, documents, numbers, rows = featurized(tokenizer, version)
    with np.load(GOLDEN / f"{version}_logits.npz") as file:
        answers = answer_spans.best_answers(
            documents,
            numbers,
            [row.window for row in rows],
            file["start_logits"],
            file["end_logits"],
            answer_spans.Search(with_null=version == "v2"),
        )
    return ids, documents, answers


# --- The release's features ----------------------------------------------------------


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_windows_equal_the_release(version, uncased):
    _, documents, numbers, rows = featurized(uncased, version)
    features = read_golden(f"{version}_features.jsonl.gz")
    assert len(rows) == len(features) > 200
    for number, row, feature in zip(numbers, rows, features, strict=True):
        window = row.window
        document = documents[number]
        starts = [match.start() for match in WORD.finditer(document.text)]
        words = np.searchsorted(starts, document.starts, side="right") - 1
        tokens = np.arange(len(feature["input_ids"])) - window.offset
        assert number == feature["example_index"]
        assert row.input_ids.tolist() == feature["input_ids"]
        assert row.segment_ids.sum() == feature["segment_ids_sum"]
        assert row.segment_ids.tolist() == sorted(row.segment_ids)
        assert feature["token_to_orig_map"] == {
            str(token + window.offset): words[token]
            for token in range(window.first, window.stop)
        }
        owned = (window.own_first <= tokens) & (tokens < window.own_stop)
        assert owned.astype(int).tolist() == feature["max_context"]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answer_positions_equal_the_release(version, uncased):
    *_, rows = featurized(uncased, version, training=True)
    features = read_golden(f"{version}_features.jsonl.gz")
    assert sum(feature["start_position"] > 0 for feature in features) > 100
    for row, feature in zip(rows, features, strict=True):
        assert (row.start_position, row.end_position) == (
            feature["start_position"],
            feature["end_position"],
        )


# --- The release's n-best lists ------------------------------------------------------


def collapsed(text):
    return " ".join(text.split())


def realigned(tokenizer, document, span):
    """The release's text for a span, and whether it fell back to whole words.

    It spells the words that the span touches as the tokenizer does, finds the pieces in
    that and counts characters, spaces aside; where a character has become none or two,
    counting fails.
    """
    inside = (document.starts >= span.start) & (document.ends <= span.end)
    tokens = [tokenizer.vocabulary.tokens[id] for id in document.ids[inside]]
    pieces = " ".join(tokens).replace(" ##", "").replace("##", "")
    words = " ".join(
        match.group()
        for match in WORD.finditer(document.text)
        if match.end() > span.start and match.start() < span.end
    )
    spelled = " ".join(WordSplitter().words(words))
    places = [place for place, character in enumerate(words) if character != " "]
    begin = spelled.find(pieces)
    if begin < 0 or len(spelled.replace(" ", "")) != len(places):
        return words, True
    first = begin - spelled[:begin].count(" ")
    last = first + len(pieces.replace(" ", "")) - 1
    return words[places[first] : places[last] + 1], False


def by_logits(entries):
    """Each entry under its logits, and how often they came before."""
    found = {}
    for start_logit, end_logit, entry in entries:
        times = sum(key[:2] == (start_logit, end_logit) for key in found)
        found[start_logit, end_logit, times] = entry
    return found


def compare(golden, nbest):
    """Holds a list to the release's."""
    theirs = by_logits((e["start_logit"], e["end_logit"], e) for e in golden)
    ours = by_logits((s.start_logit, s.end_logit, s) for s in nbest)
    both = [key for key in ours if key in theirs]
    assert both == [key for key in theirs if key in ours]
    # A span more at the top pushes one out at the end, but never "no answer".
    named = [key for key, entry in theirs.items() if entry["text"]]
    lost = [key for key in theirs if key not in ours]
    assert lost == named[len(named) - len(lost) :]
    share = sum(ours[key].probability for key in both)
    their_share = sum(theirs[key]["probability"] for key in both)
    for key in both:
        probability = theirs[key]["probability"] * share / their_share
        assert ours[key].probability == pytest.approx(probability, abs=1e-6)
    unlike = [
        (ours[key], theirs[key]["text"])
        for key in both
        if collapsed(ours[key].text) != collapsed(theirs[key]["text"])
    ]
    return unlike, [ours[key] for key in ours if key not in theirs]


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_answers_equal_the_release_except_where_it_fell_back_to_words(version, uncased):
    """golden/squad/whole_words.tsv lists each exception: id, its text, our text."""
    ids, documents, answers = answered(uncased, version)
    lists = read_golden(f"{version}_nbest_predictions.json.gz")
    predictions = read_golden(f"{version}_predictions.json")
    exceptions = []
    # Four ids of v2 stand twice; the release's files hold what came last.
    last = {
        id: (answer, document)
        for id, answer, document in zip(ids, answers, documents, strict=True)
    }
    assert last.keys() == lists.keys() == predictions.keys()
    for id, (answer, document) in last.items():
        unlike, unnamed = compare(lists[id], answer.nbest)
        texts = dict(unlike)
        for span, text in unlike:
            assert realigned(uncased, document, span) == (text, True)
            exceptions.append([id, text, span.text])
        for span in unnamed:
            text, fell_back = realigned(uncased, document, span)
            assert fell_back and text in [entry["text"] for entry in lists[id]]
            exceptions.append([id, text, span.text])
        if answer.best is None:  # one question of v1
            assert answer.nbest == [AnswerSpan("empty", 0, 0, 0.0, 0.0, 1.0)]
            assert predictions[id] == answer.text() == "empty"
            continue
        for span in answer.nbest:
            assert span.text == document.text[span.start : span.end]
        expected = texts.get(answer.best, answer.text()) if answer.text() else ""
        assert collapsed(predictions[id]) == collapsed(expected)
    table = (GOLDEN / "whole_words.tsv").read_text("utf-8").splitlines()
    listed = [line.split("\t")[1:] for line in table if line.startswith(version)]
    assert exceptions == listed


def test_null_odds_equal_the_release(uncased):
    ids, _, answers = answered(uncased, "v2")
    odds = {id: answer.null_odds for id, answer in zip(ids, answers, strict=True)}
    assert odds == pytest.approx(read_golden("v2_null_odds.json"), abs=1e-6)
