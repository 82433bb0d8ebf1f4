"""Every script with ALBERT's SentencePiece model: records, offsets, exports, conversion.

An export is compared with its script's own answers before it appears, so a run that ends
with one has tokenized alike in Python and in the graph.
"""

import json
import shutil

import numpy as np
import pytest

import build_vocab
import convert_checkpoint
import create_pretraining_data
import extract_features
import fill_mask
import inspect_records
import run_classifier
import run_pretraining
import run_squad
import tests
from training.backend import tf
from training.run import settle
from errors import UserError
from family.albert.encoder import AlbertConfig
from serving import checksums
from serving.predictor import Predictor
from tests import jobs
from text.tokenizers.recorded_settings import FolderText
from text.tokenizers.table import TokenizerOptions

MODEL = tests.GOLDEN / "sentencepiece" / "tiny.model"
TINY = AlbertConfig(
    vocab_size=1500,
    embedding_size=8,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    max_position_embeddings=64,
)
WHOLE = {"do_train": True, "do_eval": True, "do_predict": True, "do_export": True}


@pytest.fixture(scope="module")
def tokenizer():
    return TokenizerOptions().load_tokenizer(str(MODEL))


@pytest.fixture
def folder(tmp_path, untraced):
    (tmp_path / "config.json").write_text(TINY.to_json_string())
    return tmp_path


def run_job(script, folder, **changes):
    own = {"vocab_file": str(MODEL), "data_dir": str(folder), "max_seq_length": 32}
    if script is run_squad:
        del own["data_dir"]
    jobs.run(script, jobs.flags(folder, **own | changes))
    return str(folder / "output")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_classifier_answers_from_an_export_that_names_what_it_needs(folder):
    texts = ("In 2019, the file", "Café naïve ½", "서울 😀", "", "it's a value.")
    rows = [
        {"a": a, "b": b, "label": str(i % 2)}
        for a in texts
        for i, b in enumerate(texts)
    ]
    for name in ("train", "dev", "test"):
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines)
    output = run_job(
        run_classifier,
        folder,
        task_name="custom",
        text_a_column="a",
        text_b_column="b",
        **{f"{name}_file": f"{name}.jsonl" for name in ("train", "dev", "test")},
        **WHOLE,
    )
    assert (folder / "output" / "spiece.model").read_bytes() == MODEL.read_bytes()
    export = folder / "output" / "export"
    assets = export / "text" / "1" / "assets"
    assert (assets / "spiece.model").read_bytes() == MODEL.read_bytes()
    path = export / "export.json"
    description = json.loads(path.read_text())
    assert description["libraries"] == ["tensorflow_text"]
    # Another process, as predict.py: nothing has loaded the operations before.
    asked = folder / "asked.jsonl"
    asked.write_text(json.dumps({"text_a": texts[0], "text_b": texts[1]}) + "\n")
    flags = {"model_dir": output, "input_file": str(asked)}
    done = jobs.finished(jobs.command("predict.py", flags))
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout.splitlines()[0])
    request = {"text_a": texts[0], "text_b": texts[1]}
    (again,) = Predictor(output).predict([request])
    assert answer["probabilities"] == pytest.approx(again["probabilities"], abs=1e-5)
    for model, needs in (("text", True), ("tensors", False)):
        content = (export / model / "1" / "saved_model.pb").read_bytes()
        assert (b"Sentencepiece" in content) == needs
    changed = checksums.seal(description | {"libraries": ["os"]})
    path.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="export.json: the model needs 'os'"):
        Predictor(output)


CONTEXT = "The Übergröße  (1895-1943)\n\nis   in the file\tin 2019, or 서울의 날씨 ½."


@pytest.mark.slow
@pytest.mark.exhaustive
def test_answers_to_questions_are_exact_substrings(folder):
    answers = ["1895", "Übergröße", "2019", "½"]
    questions = [
        {
            "id": str(place),
            "question": f"What is {place}?",
            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}],
        }
        for place, answer in enumerate(answers)
    ]
    paragraphs = [{"context": CONTEXT, "qas": questions}]
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}
    for name in ("train", "dev"):
        (folder / f"{name}.json").write_text(json.dumps(content))
    output = run_job(
        run_squad,
        folder,
        train_file=str(folder / "train.json"),
        predict_file=str(folder / "dev.json"),
        train_batch_size=[4],
        doc_stride=6,
        max_query_length=8,
        n_best_size=5,
        **WHOLE,
    )
    nbest = json.loads((folder / "output" / "nbest_predictions.json").read_text())
    for span in (span for spans in nbest.values() for span in spans):
        assert span["text"] and span["text"] in CONTEXT
        assert span["text"] == span["text"].strip()
    (answer,) = Predictor(output).predict([{"question": "What?", "context": CONTEXT}])
    assert answer["answer"] == CONTEXT[answer["start"] : answer["end"]] != ""


# --- Pre-training --------------------------------------------------------------------


def make_records(folder, **changes):
    text = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text()
    (folder / "text.txt").write_text("\n".join(text.splitlines()[:200]))
    given = {
        "input_file": [str(folder / "text.txt")],
        "output_file": [str(folder / "records.tfrecord")],
        "vocab_file": str(MODEL),
        "max_seq_length": 40,
        "max_predictions_per_seq": 6,
        "dupe_factor": 1,
        "do_whole_word_mask": True,
        "num_workers": 1,
    }
    given |= changes
    create_pretraining_data.main(create_pretraining_data.Options(**given))
    return given["output_file"][0]


def features(path):
    for record in tf.data.TFRecordDataset(path):
        found = tf.train.Example.FromString(record.numpy()).features.feature
        yield {name: np.array(each.int64_list.value) for name, each in found.items()}


def test_records_have_the_ids_of_the_text_and_keep_their_rules(tmp_path, tokenizer):
    records = make_records(
        tmp_path, instances="doc_sentences", masking="dynamic", do_whole_word_mask=False
    )
    ids = [
        id
        for row in features(records)
        for id in row["input_ids"]
        if id not in (0, 2, 3)
    ]
    lines = (tmp_path / "text.txt").read_text().splitlines()
    expected = [id for line in lines for id in tokenizer.encode(line)]
    assert sorted(ids) == sorted(expected)
    shown = {"input_file": [records], "vocab_file": str(MODEL), "num_shown": 3}
    assert not inspect_records.main(inspect_records.Options(**shown))


@pytest.mark.parametrize("boundaries", ["vocabulary", "spaces"])
def test_whole_words_are_masked(tmp_path, tokenizer, boundaries):
    records = make_records(
        tmp_path, instances="doc_sentences", word_boundaries=boundaries
    )
    tokens, vocabulary = tokenizer.vocabulary.tokens, tokenizer.vocabulary
    continues = vocabulary.is_continuation
    if boundaries == "spaces":
        continues = np.array([token[0] not in "\u2581[<" for token in tokens])
    parts = 0
    for row in features(records):
        positions = set(row["masked_lm_positions"].tolist()) - {0}
        ids = row["input_ids"]
        slots = row["masked_lm_positions"]
        ids[slots[slots > 0]] = row["masked_lm_ids"][slots > 0]
        for position in positions:
            after = ids[position + 1]
            if continues[after] and after != vocabulary.sep_id:
                assert position + 1 in positions
                parts += 1
    assert parts > 10


def test_cased_text_loses_its_accents_whatever_the_flag_for_case(tmp_path):
    """As in the release."""
    (tmp_path / "corpus.txt").write_text("a é b\nc É d\n" * 9)
    given = {
        "input_file": [str(tmp_path / "corpus.txt")],
        "instances": "doc_sentences",
        "masking": "dynamic",
        "do_whole_word_mask": False,
        "do_lower_case": False,
    }
    for strips, count in ((None, 9), (False, 0)):
        records = make_records(
            tmp_path,
            output_file=[str(tmp_path / f"{strips}.tfrecord")],
            strip_accents=strips,
            **given,
        )
        flags = TokenizerOptions(do_lower_case=False).load_tokenizer(str(MODEL))
        e = flags.vocabulary.ids["e"]
        found = sum((row["input_ids"] == e).sum() for row in features(records))
        assert found == count


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_pre_trained_model_fills_masks_and_is_converted(folder, capsys, tokenizer):
    records = make_records(folder)
    given = {
        "input_file": [records],
        "max_seq_length": 40,
        "max_predictions_per_seq": 6,
        "train_batch_size": 8,
        "num_train_steps": 2,
        "num_warmup_steps": 1,
        "do_train": True,
        "do_export": True,
        "vocab_file": str(MODEL),
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
    }
    jobs.run(run_pretraining, given)
    jobs.check_masks(str(folder / "output"), str(MODEL), capsys)
    wanted = {"init_checkpoint": str(folder / "output"), "text": "the [MASK]"}
    with pytest.raises(UserError, match="do_lower_case"):
        flags = {"vocab_file": str(MODEL), "do_lower_case": False}
        fill_mask.main(fill_mask.Options(**wanted, **flags))
    with pytest.raises(UserError, match="another kind of vocabulary|another"):
        words = str(tests.ROOT / "tests/golden/checkpoint/vocab.txt")
        fill_mask.main(fill_mask.Options(**wanted, vocab_file=words))
    # Without --vocab_file, the model next to the checkpoint is used.
    extract_features.main(
        extract_features.Options(
            layers=[-1],
            init_checkpoint=str(folder / "output"),
            input_file=str(folder / "text.txt"),
            output_file=str(folder / "features.jsonl"),
            max_seq_length=64,
        )
    )
    with open(folder / "features.jsonl") as file:
        first = json.loads(file.readline())["features"]
    line = (folder / "text.txt").read_text().splitlines()[0]
    expected = ["[CLS]", *tokenizer.tokenize(line), "[SEP]"]
    assert [feature["token"] for feature in first] == expected
    theirs = str(folder / "theirs")
    convert_checkpoint.main(
        convert_checkpoint.Options(
            input=[str(folder / "output")], layout="hugging_face", output_dir=theirs
        )
    )
    said = json.loads((folder / "theirs" / "tokenizer_config.json").read_text())
    assert said["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert said["do_lower_case"] is True and said["keep_accents"] is False
    assert (folder / "theirs" / "spiece.model").read_bytes() == MODEL.read_bytes()
    back = {"init_checkpoint": theirs, "vocab_file": theirs, "text": "the [MASK]"}
    fill_mask.main(fill_mask.Options(**back))
    for flags, said in (
        ({"do_lower_case": False}, "pass --do_lower_case=true"),
        ({"strip_accents": False}, "pass --strip_accents=true"),
    ):
        with pytest.raises(UserError, match=said):
            fill_mask.main(fill_mask.Options(**back, **flags))


def test_a_vocabulary_of_another_kind_next_to_a_checkpoint_is_refused(tmp_path):
    shutil.copy(MODEL, tmp_path / "30k-clean.model")
    words = TokenizerOptions().load_tokenizer(
        str(tests.GOLDEN / "checkpoint" / "vocab.txt")
    )
    with pytest.raises(UserError, match="another kind of vocabulary than .*30k-clean"):
        settle.check_ids(words, FolderText(str(tmp_path)))


# --- Learning ------------------------------------------------------------------------

LINES = "Low lower lowest (new) newer - newest! In 2019, £5 for a café.\n" * 20


@pytest.fixture
def build(tmp_path):
    def build_from(text=LINES, **chosen):
        (tmp_path / "text.txt").write_text(text)
        chosen = {
            "input_file": [str(tmp_path / "text.txt")],
            "output_file": str(tmp_path / "made" / "spiece.model"),
            "vocab_size": 60,
        } | chosen
        build_vocab.main(build_vocab.Options(**chosen))
        return TokenizerOptions(
            do_lower_case=chosen.get("do_lower_case")
        ).load_tokenizer(chosen["output_file"])

    return build_from


def test_a_model_is_learned_as_for_the_release(build, capsys):
    tokenizer = build(heldout_share=0.1)
    tokens = tokenizer.vocabulary.tokens
    assert tokens[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert tokens[5:13] == ["(", ")", '"', "-", ".", "–", "£", "€"]
    assert len(tokens) <= 60 and "é" not in tokens
    line = LINES.splitlines()[0]
    assert tokenizer.vocabulary.unk_id not in tokenizer.encode(line)
    out = capsys.readouterr().out
    assert "learned from 18 of 18 lines" in out and "0.000% are [UNK]" in out
    assert f"on {2 * len(line.split())} held-out words" in out
    assert "C" not in "".join(tokens[13:]) and build(do_lower_case=False).encode("L")


@pytest.mark.slow
def test_every_process_learns_the_same(tmp_path):
    text = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text()
    (tmp_path / "text.txt").write_text(text)
    made = []
    for seed in ("1", "2"):
        flags = {
            "kind": "sentencepiece",
            "input_file": [str(tmp_path / "text.txt")],
            "output_file": str(tmp_path / seed / "a.model"),
            "vocab_size": 400,
            "input_sentence_size": 300,
        }
        line = jobs.command("build_vocab.py", flags)
        environment = jobs.ENVIRONMENT | {"PYTHONHASHSEED": seed}
        assert not jobs.finished(line, env=environment).returncode
        made.append((tmp_path / seed / "a.model").read_bytes())
    assert made[0] == made[1]


def test_long_lines_are_learned_from_to_their_end(build):
    tokenizer = build("ab " * 3000 + "\n" + "x" * 9000 + " yz\n" + "cd yz\n" * 5)
    assert tokenizer.vocabulary.unk_id not in tokenizer.encode("abcdxyz")


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ({"num_unused": 3}, "--num_unused does not apply .* SentencePiece; leave it"),
        ({"split_cjk": False}, "--split_cjk does not apply"),
        (
            {"vocab_size": 13},
            "must be above 13, .* plus marks of --special_tokens=albert",
        ),
        ({"vocab_size": 20}, "--vocab_size=20 is too small: .* need"),
        ({"text": " \n"}, "no words in the text"),
        ({"kind": "wordpiece"}, "with --kind=wordpiece, its name must end in .txt"),
        ({"character_coverage": 2.0}, "must be from 0.9 to 1"),
        ({"input_sentence_size": 100}, "must be above 100"),
    ],
)
def test_refusals(build, tmp_path, chosen, said):
    with pytest.raises(UserError, match=said):
        build(**chosen)
    assert list(tmp_path.glob("made/*")) == []


def test_flags_of_sentencepiece_do_not_apply_to_other_kinds(build, tmp_path):
    with pytest.raises(UserError, match="--character_coverage does not apply"):
        build(output_file=str(tmp_path / "vocab.txt"), character_coverage=0.99)
