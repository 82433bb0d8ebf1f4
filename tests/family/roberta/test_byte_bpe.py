"""Every script with a byte-level vocabulary: rows, offsets, exports that answer raw text.

An export is compared with its script's own answers before it appears, so a run that ends
with one has tokenized alike in Python and in the graph.
"""

import itertools
import json
import shutil

import numpy as np
import pytest

import create_pretraining_data
import extract_features
import fill_mask
import inspect_records
import predict
import run_classifier
import run_ner
import run_pretraining
import run_squad
import tests
from training.backend import tf
from errors import UserError
from family.roberta.config import RobertaConfig
from serving.predictor import Predictor
from tests import jobs
from text.tasks import squad
from text.tasks.answer_spans import Document
from text.tokenizers import bpe
from text.tokenizers.table import TokenizerOptions

VOCABULARY = str(tests.GOLDEN / "byte_bpe")
TINY = RobertaConfig(
    vocab_size=905,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}
TEXTS = (
    "The simple form is equivalent.",
    "오늘 날씨가 좋네요",
    "cafe\u0301 😀  and\u00a0more\n",
    "It's the dog's.",
)


@pytest.fixture(scope="module")
def tokenizer():
    return TokenizerOptions().load_tokenizer(VOCABULARY)


@pytest.fixture
def folder(tmp_path, untraced):
    (tmp_path / "config.json").write_text(TINY.to_json_string())
    return tmp_path


def run(script, folder, **changes):
    own = {"vocab_file": VOCABULARY, "data_dir": str(folder), "max_seq_length": 32}
    if script is run_squad:
        del own["data_dir"]
    given = jobs.flags(folder, **own | changes)
    jobs.run(script, given)
    return Predictor(str(folder / "output"))


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def write_lines(path, objects):
    path.write_text("".join(f"{json.dumps(each)}\n" for each in objects))


@pytest.mark.exhaustive
def test_a_classifier_of_pairs(folder):
    rows = [
        {"a": a, "b": b, "label": str(i % 2)}
        for a in TEXTS
        for i, b in enumerate(TEXTS)
    ]
    for name in ("train", "dev", "test"):
        write_lines(folder / f"{name}.jsonl", rows)
    predictor = run(
        run_classifier,
        folder,
        task_name="custom",
        text_a_column="a",
        text_b_column="b",
        **{f"{name}_file": f"{name}.jsonl" for name in ("train", "dev", "test")},
        **WHOLE,
    )
    for name in ("vocab.json", "merges.txt"):
        expected = (tests.GOLDEN / "byte_bpe" / name).read_bytes()
        assert (folder / "output" / name).read_bytes() == expected
        assets = folder / "output" / "export" / "text" / "1" / "assets"
        assert (assets / name).read_bytes() == expected
    # Rows in the files: <s> a </s></s> b </s>, padded with <pad>, all of segment 0.
    (record,) = tf.data.TFRecordDataset(str(folder / "output/train.tf_record")).take(1)
    features = tf.train.Example.FromString(record.numpy()).features.feature
    ids = np.array(features["input_ids"].int64_list.value)
    mask = np.array(features["input_mask"].int64_list.value)
    text = " ".join(str(id) for id in ids[: mask.sum()])
    assert text.startswith("0 ") and text.endswith(" 2") and " 2 2 " in text
    assert set(ids[mask == 0]) == {1}
    assert not any(features["segment_ids"].int64_list.value)
    # What predict.py answers is what the script predicted.
    output = folder / "answers.jsonl"
    predict.main(
        predict.Options(
            model_dir=str(folder / "output"),
            input_file=str(folder / "test.jsonl"),
            output_file=str(output),
        )
    )
    table = (folder / "output" / "test_results.tsv").read_text().splitlines()
    for answer, line in zip(lines(output), table, strict=True):
        expected = list(map(float, line.split("\t")))
        assert list(answer["probabilities"].values()) == pytest.approx(
            expected, abs=1e-5
        )
    assert len(predictor.predict([{"text_a": "", "text_b": "x"}])) == 1


def squad_file(questions):
    paragraphs = [
        {
            "context": context,
            "qas": [
                {
                    "id": f"{number}-{place}",
                    "question": f"What shines {place}?",
                    "answers": [
                        {"text": answer, "answer_start": context.index(answer)}
                    ],
                }
                for place, answer in enumerate(answers)
            ],
        }
        for number, (context, answers) in enumerate(questions)
    ]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


CONTEXTS = [
    (
        "The Übergröße  (1895-1943)\n\nis   the simple\tform.",
        ["1895", "Übergröße", "is"],
    ),
    ("서울의 날씨는 좋네요 😀 the form " * 3, ["날씨는", "😀", "form"]),
]


def test_an_annotated_answer_is_found_by_its_pieces(tokenizer):
    for context, answers in CONTEXTS:
        document = Document(tokenizer, context)
        for answer in answers:
            start = context.index(answer)
            first, last = squad.find_answer(document, tokenizer, answer, start)
            assert context[document.starts[first] : document.ends[last]] == answer


@pytest.mark.exhaustive
def test_answers_to_questions_are_exact_substrings(folder):
    (folder / "train.json").write_text(json.dumps(squad_file(CONTEXTS * 3)))
    (folder / "dev.json").write_text(json.dumps(squad_file(CONTEXTS)))
    predictor = run(
        run_squad,
        folder,
        train_file=str(folder / "train.json"),
        predict_file=str(folder / "dev.json"),
        max_seq_length=24,
        doc_stride=6,
        max_query_length=8,
        n_best_size=5,
        **WHOLE,
    )
    found = json.loads((folder / "output" / "nbest_predictions.json").read_text())
    contexts = {
        f"{i}-{j}": c for i, (c, a) in enumerate(CONTEXTS) for j in range(len(a))
    }
    assert found.keys() == contexts.keys()
    for id, spans in found.items():
        for span in spans:
            assert span["text"] in contexts[id]
            assert span["text"] and span["text"] == span["text"].strip()
    requests = [
        {"question": "What shines?", "context": text}
        for text in (
            "  \n\n a   b \n",
            "   ",
            "",
            *(context for context, _ in CONTEXTS),
        )
    ]
    for request, answer in zip(requests, predictor.predict(requests), strict=True):
        text = request["context"][answer["start"] : answer["end"]]
        assert answer["answer"] == (text if request["context"].strip() else "empty")


@pytest.mark.exhaustive
def test_words_are_tagged_by_the_first_piece_after_their_space(folder, tokenizer):
    words = ["The", "Übergröße", "서울", "is", "form", "."]
    text = "".join(f"{word} O\n" for word in words[:2])
    text = (text + "".join(f"{word} B-X\n" for word in words[2:]) + "\n") * 8
    for name in ("train", "dev", "test"):
        (folder / f"{name}.txt").write_text(text)
    predictor = run(run_ner, folder, **WHOLE)
    (answer,) = predictor.predict([{"words": words}])
    assert len(answer["tags"]) == len(words)
    given = run_ner.Options(
        **jobs.flags(
            folder,
            vocab_file=VOCABULARY,
            data_dir=str(folder),
            max_seq_length=64,
            do_train=True,
        )
    )
    task = run_ner.Tagger(given, tokenizer)
    (row,) = task.featurize(task.read("train")[0], "train")
    ids = tokenizer.encode("".join(f" {word}" for word in words))
    assert list(row.input_ids) == [0, *ids, 2]
    places = np.flatnonzero(row.labels["label_weights"])
    starts = [tokenizer.vocabulary.tokens[row.input_ids[place]][0] for place in places]
    assert starts == ["\u0120"] * len(words)


# --- Pre-training --------------------------------------------------------------------

KINDS = [
    ("pairs", "static"),
    ("full_sentences", "dynamic"),
    ("doc_sentences", "static"),
]


def make_records(folder, instances, masking, whole_words=False):
    text = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text()
    (folder / "text.txt").write_text("\n".join(text.splitlines()[:300]))
    records = str(folder / "records.tfrecord")
    given = create_pretraining_data.Options(
        input_file=[str(folder / "text.txt")],
        output_file=[records],
        vocab_file=VOCABULARY,
        max_seq_length=40,
        max_predictions_per_seq=6,
        instances=instances,
        masking=masking,
        dupe_factor=1,
        do_whole_word_mask=whole_words,
        num_workers=1,
    )
    create_pretraining_data.main(given)
    return records


@pytest.mark.parametrize(("instances", "masking"), KINDS)
def test_records_keep_the_rules_of_their_kind(tmp_path, capsys, instances, masking):
    records = make_records(tmp_path, instances, masking)
    capsys.readouterr()
    shown = inspect_records.Options(
        input_file=[records], vocab_file=VOCABULARY, num_shown=50
    )
    assert not inspect_records.main(shown)
    said = capsys.readouterr().out
    for side in ("A", "B") if instances == "pairs" else ("Text",):
        assert f"  {side}: " in said
    if masking == "dynamic":  # the text again
        text = " ".join((tmp_path / "text.txt").read_text().split())
        shown = said.split("  Text: ")[1:]
        shown = [" ".join(record.split("\n\n")[0].split()) for record in shown]
        assert sum(record in text for record in shown) > 40


def test_sentences_of_a_record_have_a_space_between_them(tmp_path, tokenizer):
    records = make_records(tmp_path, "doc_sentences", "dynamic")
    byte_of = {c: byte for byte, c in enumerate(bpe.byte_characters())}
    found = ""
    for record in tf.data.TFRecordDataset(records):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        ids = [id for id in features["input_ids"].int64_list.value if id > 3]
        spelled = "".join(tokenizer.vocabulary.tokens[id] for id in ids)
        found += bytes(byte_of[c] for c in spelled).decode(errors="replace") + "\n"
    sentences = (tmp_path / "text.txt").read_text().splitlines()
    borders = [(a[-4:], b[:3]) for a, b in itertools.pairwise(sentences) if a and b]
    assert sum(f"{a} {b}" in found for a, b in borders) > 8
    assert not any(a + b in found for a, b in borders)


def test_whole_words_are_masked_from_space_to_space(tmp_path, capsys, tokenizer):
    records = make_records(tmp_path, "doc_sentences", "static", whole_words=True)
    continues, num_parts = tokenizer.vocabulary.is_continuation, 0
    for record in tf.data.TFRecordDataset(records):
        features = tf.train.Example.FromString(record.numpy()).features.feature
        values = {k: np.array(v.int64_list.value) for k, v in features.items()}
        count = int(sum(features["masked_lm_weights"].float_list.value))
        positions = values["masked_lm_positions"][:count]
        ids = values["input_ids"]
        ids[positions] = values["masked_lm_ids"][:count]
        for position in positions:
            if continues[ids[position]] and ids[position - 1] not in (0, 2):
                assert position - 1 in positions
                num_parts += 1
            if continues[ids[position + 1]]:
                assert position + 1 in positions
    assert num_parts > 10


@pytest.mark.exhaustive
def test_a_pre_trained_model_fills_masks_and_gives_features(folder, capsys, tokenizer):
    records = make_records(folder, "full_sentences", "dynamic", whole_words=True)
    given = {
        "input_file": [records],
        "objective": "masked_lm",
        "max_seq_length": 40,
        "max_predictions_per_seq": 6,
        "train_batch_size": 8,
        "learning_rate": 1e-3,
        "num_train_steps": 2,
        "num_warmup_steps": 1,
        "do_train": True,
        "do_export": True,
        "vocab_file": VOCABULARY,
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
    }
    jobs.run(run_pretraining, given)
    capsys.readouterr()
    text = "The <mask> form  <mask>."
    filled = {"init_checkpoint": str(folder / "output"), "vocab_file": VOCABULARY}
    fill_mask.main(fill_mask.Options(**filled, text=text))
    _, *shown = capsys.readouterr().out.splitlines()
    (answer,) = Predictor(str(folder / "output")).predict([{"text": text}])
    assert [line.split()[:2] for line in shown] == [
        ["<mask>:", mask[0]["token"]] for mask in answer["masks"]
    ]
    with pytest.raises(UserError, match="no <mask> in 'The \\[MASK\\]'"):
        fill_mask.main(fill_mask.Options(**filled, text="The [MASK]"))
    # Without --vocab_file, the vocabulary next to the checkpoint is used.
    features = extract_features.Options(
        layers=[-1],
        init_checkpoint=str(folder / "output"),
        input_file=str(folder / "text.txt"),
        output_file=str(folder / "features.jsonl"),
        max_seq_length=64,
    )
    extract_features.main(features)
    first = lines(folder / "features.jsonl")[0]["features"]
    line = (folder / "text.txt").read_text().splitlines()[0]
    expected = ["<s>", *tokenizer.tokenize(line), "</s>"]
    assert [feature["token"] for feature in first] == expected
    # Another vocabulary of the same size is refused.
    other = folder / "other"
    other.mkdir()
    ids = json.loads((tests.GOLDEN / "byte_bpe" / "vocab.json").read_text())
    ids["aris"], ids["s"] = ids["s"], ids["aris"]
    (other / "vocab.json").write_text(json.dumps(ids))
    merges = (tests.GOLDEN / "byte_bpe" / "merges.txt").read_bytes()
    (other / "merges.txt").write_bytes(merges)
    with pytest.raises(UserError, match="vocab.json: token .* is 'aris', but 's'"):
        fill_mask.main(fill_mask.Options(**filled | {"vocab_file": str(other)}))
    # So are other merges of the same tokens.
    shutil.copy(tests.GOLDEN / "byte_bpe" / "vocab.json", other)
    (other / "merges.txt").write_bytes(b"".join(merges.splitlines(True)[:9]))
    with pytest.raises(UserError, match="vocab.json: has another merges.txt than"):
        fill_mask.main(fill_mask.Options(**filled | {"vocab_file": str(other)}))
