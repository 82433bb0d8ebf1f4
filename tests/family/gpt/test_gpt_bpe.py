"""Scripts with GPT-1's vocabulary: rows, records, exports of raw text, and refusals."""

import dataclasses
import json

import numpy as np
import pytest

import create_pretraining_data
import inspect_records
import run_classifier
import run_pretraining
import run_squad
import tests
from training.backend import tf
from errors import UserError
from modeling.architectures.bert import BertConfig
from serving.predictor import Predictor
from tests import jobs
from text.tokenizers.table import TokenizerOptions

VOCABULARY = str(tests.GOLDEN / "gpt_bpe" / "encoder_bpe_40000.json")
TINY = BertConfig(
    vocab_size=982,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=64,
    attention_direction="left_to_right",
)
CONTEXT = "The cats' Übergröße  (1895) don't shine, 서울 😀 do. "
START, DELIMITER, CLASSIFY = 979, 980, 981


@pytest.fixture
def folder(tmp_path, untraced):
    (tmp_path / "config.json").write_text(TINY.to_json_string())
    for name in ("train", "dev", "test"):
        rows = [{"a": CONTEXT[i:], "b": "cats", "label": str(i % 2)} for i in range(8)]
        lines = "".join(f"{json.dumps(row)}\n" for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines)
    answers = ["Übergröße", "shine", "😀"]
    questions = [
        {
            "id": str(number),
            "question": "What shines?",
            "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}],
        }
        for number, answer in enumerate(answers * 3)
    ]
    data = [{"title": "", "paragraphs": [{"context": CONTEXT, "qas": questions}]}]
    (tmp_path / "squad.json").write_text(json.dumps({"version": "1", "data": data}))
    return tmp_path


def flags(folder, script, **changes):
    own = {"vocab_file": VOCABULARY, "max_seq_length": 32, "do_train": True}
    sets = {f"{name}_file": f"{name}.jsonl" for name in ("train", "dev", "test")}
    columns = {"text_a_column": "a", "text_b_column": "b"}
    of_script = {
        run_classifier: {
            "task_name": "custom",
            "data_dir": str(folder),
            **sets,
            **columns,
        },
        run_squad: {
            "train_file": str(folder / "squad.json"),
            "predict_file": str(folder / "squad.json"),
            "max_query_length": 6,
            "doc_stride": 4,
        },
    }[script]
    return jobs.flags(folder, **own | of_script | changes)


@pytest.mark.exhaustive
@pytest.mark.parametrize("script", [run_classifier, run_squad])
def test_an_export_answers_as_its_script(folder, script):
    """It is compared with the script's own answers before it appears."""
    jobs.run(script, flags(folder, script, do_predict=True, do_export=True))
    predictor = Predictor(str(folder / "output"))
    request = {
        run_classifier: {"text_a": "the cats", "text_b": "😀"},
        run_squad: {"question": "What?", "context": CONTEXT},
    }[script]
    assert len(predictor.predict([request])) == 1
    if script is run_squad:
        found = json.loads((folder / "output" / "nbest_predictions.json").read_text())
        assert all(
            span["text"] in CONTEXT for spans in found.values() for span in spans
        )
        return
    (record,) = tf.data.TFRecordDataset(str(folder / "output/train.tf_record")).take(1)
    features = tf.train.Example.FromString(record.numpy()).features.feature
    ids = np.array(features["input_ids"].int64_list.value)
    last = np.flatnonzero(features["input_mask"].int64_list.value)[-1]
    assert ids[0] == START and ids[last] == CLASSIFY and not ids[last + 1 :].any()
    assert (ids == DELIMITER).sum() == 1
    assert not any(features["segment_ids"].int64_list.value)


# --- Pre-training --------------------------------------------------------------------


def generate(folder, **changes):
    text = (tests.GOLDEN / "pretraining" / "corpus.txt").read_text().splitlines()
    (folder / "text.txt").write_text("\n".join([*text[:60], CONTEXT, "", *text[60:90]]))
    records = str(folder / "records.tfrecord")
    given = create_pretraining_data.Options(
        input_file=[str(folder / "text.txt")],
        output_file=[records],
        vocab_file=VOCABULARY,
        max_seq_length=40,
        max_predictions_per_seq=6,
        num_workers=1,
        **{"instances": "full_sentences", "masking": "dynamic", "dupe_factor": 1}
        | changes,
    )
    create_pretraining_data.main(given)
    return records


@pytest.mark.parametrize("instances", ["full_sentences", "doc_sentences", "pairs"])
def test_records_keep_the_rules_of_their_kind(tmp_path, capsys, instances):
    records = generate(tmp_path, instances=instances)
    capsys.readouterr()
    shown = inspect_records.Options(
        input_file=[records], vocab_file=VOCABULARY, num_shown=50
    )
    assert not inspect_records.main(shown)
    assert " the " in capsys.readouterr().out  # pieces are joined to words
    (record,) = tf.data.TFRecordDataset(records).take(1)
    features = tf.train.Example.FromString(record.numpy()).features.feature
    ids = np.array(features["input_ids"].int64_list.value)
    assert ids[0] == START and ids[ids != 0][-1] == CLASSIFY
    assert (ids == CLASSIFY).sum() == 1


def test_pre_training_predicts_the_next_token_and_masks_nothing(folder, capsys):
    records = generate(folder)
    assert "[UNK]" in capsys.readouterr().out  # nearly all of this small vocabulary
    given = {
        "input_file": [records],
        "objective": "next_token",
        "max_seq_length": 40,
        "max_predictions_per_seq": 6,
        "train_batch_size": 4,
        "num_train_steps": 1,
        "num_warmup_steps": 0,
        "do_train": True,
        "vocab_file": VOCABULARY,
        "bert_config_file": str(folder / "config.json"),
        "output_dir": str(folder / "output"),
    }
    jobs.run(run_pretraining, given)
    both = dataclasses.replace(TINY, attention_direction="both")
    (folder / "both.json").write_text(both.to_json_string())
    masked = {
        "objective": "masked_lm",
        "output_dir": str(folder / "masked"),
        "bert_config_file": str(folder / "both.json"),
    }
    with pytest.raises(UserError, match="no token for hidden words.*=next_token"):
        jobs.run(run_pretraining, given | masked)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"masking": "static"}, "hidden words.*pass --masking=dynamic"),
        ({"do_whole_word_mask": True}, "hidden words.*leave out --do_whole_word_mask"),
        ({"split_cjk": False}, "--split_cjk does not apply"),
    ],
)
def test_records_that_need_a_mask_are_refused(tmp_path, flags, said):
    with pytest.raises(UserError, match=said):
        generate(tmp_path, **flags)
    assert not (tmp_path / "records.tfrecord").exists()


def test_a_text_of_unknown_characters_is_warned_of(tmp_path, capsys):
    (tmp_path / "text.txt").write_text("오늘 날씨가 좋네요\n" * 30)
    given = create_pretraining_data.Options(
        input_file=[str(tmp_path / "text.txt")],
        output_file=[str(tmp_path / "records")],
        vocab_file=VOCABULARY,
        instances="doc_sentences",
        masking="dynamic",
        dupe_factor=1,
        num_workers=1,
    )
    create_pretraining_data.main(given)
    said = capsys.readouterr().out
    assert "warning: 100% of the tokens are [UNK]" in said
    assert "Hangul" not in said  # there is no flag against it
    tokenizer = TokenizerOptions().load_tokenizer(VOCABULARY)
    assert len(tokenizer.encode("날씨")) == 5  # its letters
