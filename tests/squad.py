"""Small files and runs of run_squad.py, for its tests."""

import json
import random

import run_squad
from tests import jobs, tiny

GOOD = ["gold", "silver", "ruby", "pearl"]
PLAIN = ["mud", "sand", "clay", "dust", "ash", "rock"]
WORDS = ["what", "shines", "?", ".", *GOOD, *PLAIN]
TINY = tiny.config(
    vocab_size=24,
    intermediate_size=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
TRAINED = ("/kernel", "/bias", "_weights", "_bias", "/gamma", "/beta", "_embeddings")
OUTPUTS = ("predictions.json", "nbest_predictions.json", "null_odds.json")


def squad(paragraphs):
    return {"version": "1.1", "data": [{"title": "", "paragraphs": paragraphs}]}


def one(**changes):
    """A file of one good question, with changes; None takes something away."""
    answer = {"text": "gold", "answer_start": 4} | changes.pop("answer", {})
    question = {"id": "q", "question": "what shines?"}
    question |= {"answers": [answer], "is_impossible": False} | changes
    drop_none = [
        {k: v for k, v in x.items() if v is not None} for x in (answer, question)
    ]
    question = drop_none[1]
    if question.get("answers") == [answer]:
        question["answers"] = [drop_none[0]]
    return squad([{"context": "mud gold dust", "qas": [question]}])


def shining(number, seed, *, impossible=False):
    """Questions whose answer is the one word, or pair of words, that shines."""
    rng = random.Random(seed)
    paragraphs = []
    for index in range(number):
        words = rng.choices(PLAIN, k=rng.randint(3, 40))
        question = {"id": f"{seed}-{index}", "question": "what shines?", "answers": []}
        if impossible:
            question["is_impossible"] = index % 3 == 0
        if not question.get("is_impossible"):
            place = rng.randrange(len(words))
            text = "  ".join(rng.choices(GOOD, k=rng.randint(1, 2)))
            words.insert(place, text)
            start = len(" ".join([*words[:place], ""]))
            question["answers"] = [{"text": text, "answer_start": start}]
        paragraphs.append({"context": " ".join(words) + ".", "qas": [question]})
    return squad(paragraphs)


def write_files(folder):
    tiny.write(folder, WORDS, TINY)
    (folder / "train.json").write_text(json.dumps(shining(48, 1)))
    (folder / "dev.json").write_text(json.dumps(shining(15, 2)))
    return folder


def flags(folder, **changes):
    own = {
        "train_file": str(folder / "train.json"),
        "predict_file": str(folder / "dev.json"),
        "max_seq_length": 24,
        "doc_stride": 6,
        "max_query_length": 5,
        "learning_rate": [1e-2],
        "max_answer_length": 4,
    }
    return jobs.flags(folder, **own | changes)


def run(folder, **changes):
    jobs.run(run_squad, flags(folder, **changes))


def read(folder, name, output="output"):
    return json.loads((folder / output / name).read_text())


def refused(folder, message, **changes):
    jobs.check_refused(run, folder, message, **changes)
