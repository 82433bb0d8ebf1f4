"""What scripts are given: small files in a folder, and the flags of a run on them."""

import json

import create_pretraining_data
import tests
from tests import exports, ner, pretraining, squad, swag, tiny, vectors

GOLDEN = tests.GOLDEN
RELEASED = {
    "init_checkpoint": str(GOLDEN / "checkpoint" / "bert_model.ckpt"),
    "vocab_file": str(GOLDEN / "checkpoint" / "vocab.txt"),
}


def of_classifier(given):
    lines = [f"{'ab'[i % 2]} c\t{i % 2}" for i in range(16)]
    for name in ("train", "dev"):
        (given / f"{name}.tsv").write_text("\n".join(["sentence\tlabel", *lines, ""]))
    lines = [f"{i}\ta b c" for i in range(4)]
    (given / "test.tsv").write_text("\n".join(["index\tsentence", *lines, ""]))
    tiny.write(given, "abc", tiny.config())
    return of_task(given) | {"task_name": "SST-2", "data_dir": str(given)}


def of_task(given):
    return {
        "vocab_file": str(given / "vocab.txt"),
        "bert_config_file": str(given / "config.json"),
        "max_seq_length": 16,
        "train_batch_size": [8],
        "num_train_epochs": [1.0],
        "learning_rate": [1e-3],
    }


def of_squad(given):
    tiny.write(given, squad.WORDS, squad.TINY)
    for name, number in (("train", 16), ("dev", 4)):
        questions = squad.shining(number, 1, impossible=True)
        (given / f"{name}.json").write_text(json.dumps(questions))
    return squad.flags(given) | {"version_2_with_negative": True}


def of_swag(given):
    tiny.write(given, swag.WORDS, swag.TINY)
    for name, labelled in (("train", True), ("val", True), ("test", False)):
        lines = swag.swag_lines(16, 1, labelled)
        swag.write_csv(given / f"{name}.csv", lines)
    return swag.flags(given)


def of_retrieval(given):
    return vectors.flags(vectors.write_files(given))


def of_ner(given):
    tiny.write(given, ner.PIECES, ner.TINY)
    for name in ("train", "dev", "test"):
        (given / f"{name}.txt").write_text(ner.conll(16, 1))
    return ner.flags(given)


def of_pretraining(given):
    return pretraining.flags(given) | {
        "eval_input_file": [pretraining.RECORDS],
        "max_eval_steps": 2,
        "vocab_file": RELEASED["vocab_file"],
    }


def of_records(given):
    text = "the first one.\nthe second is here.\n\nanother has two.\nthis is it.\n" * 9
    (given / "text.txt").write_text(text)
    return {
        "input_file": [str(given / "text.txt")],
        "vocab_file": RELEASED["vocab_file"],
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "num_workers": 1,
    }


def of_vocabulary(given):
    (given / "text.txt").write_text("low lower lowest, new newer newest\n" * 20)
    return {"input_file": [str(given / "text.txt")], "vocab_size": 130, "num_unused": 2}


def of_inspection(given):
    create_pretraining_data.main(
        create_pretraining_data.Options(
            **of_records(given)
            | {"output_file": [str(given / "records")], "overwrite": True}
        )
    )
    return {
        "input_file": [str(given / "records")],
        "vocab_file": RELEASED["vocab_file"],
    }


def of_features(given):
    (given / "text.txt").write_text("the first\nthe second\n")
    return {
        **RELEASED,
        "input_file": str(given / "text.txt"),
        "bert_config_file": str(GOLDEN / "checkpoint" / "bert_config.json"),
        "layers": [-1],
        "max_seq_length": 16,
    }


def of_questions(given):
    (given / "text.txt").write_text("a good day\n")
    return {
        "model_dir": exports.write(given / "model", "label"),
        "input_file": str(given / "text.txt"),
    }


def of_nothing(given):
    return {}
