"""continue_text.py: OpenAI's GPT and a causal BERT add tokens to a text."""

import dataclasses
import io

import numpy as np
import pytest

import continue_text
import tests
from training.queries import continuation
from training.storage import checkpoint
from errors import UserError
from family.gpt.encoder import GptConfig
from modeling.objectives import masked_lm
from tests import tiny
from tests.family.gpt.test_gpt_encoder import golden, load, read_config

WORDS = ["un", "##do", "cat", "sat"]
CONFIG = GptConfig(
    vocab_size=12,
    hidden_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    max_position_embeddings=8,
    initializer_range=0.5,
)
NUMBER = 10  # tokens in the golden continuation


@pytest.fixture(scope="module")
def gpt():
    return load(masked_lm.MaskedLM().network(read_config()))


def test_greedy_continuations_equal_hugging_faces(gpt):
    theirs = golden("hf/outputs.npz")
    continuer = continuation.Continuer(gpt, np.ones(120, bool))
    for row, expected in zip((0, 2), theirs["greedy"], strict=True):
        begin = theirs["in_ids"].reshape(-1, 24)[row, :6]
        np.testing.assert_array_equal(begin, expected[:6])
        (found,) = continuer.extend(begin, NUMBER)
        np.testing.assert_array_equal(found, expected[6:])


def test_drawn_tokens_have_the_probabilities_of_the_model(gpt):
    ids = golden("hf/outputs.npz")["in_ids"][0, 0, :6]
    logits = golden("hf/outputs.npz")["logits"][0, 5].astype(float)
    allowed = np.arange(120) % 2 == 0
    continuer = continuation.Continuer(gpt, allowed, temperature=2.0, top_k=5)
    found = continuer.extend(ids, 1, samples=4000, seed=1)
    best = np.flatnonzero(allowed)[np.argsort(-logits[allowed])[:5]]
    odds = np.exp(logits[best] / 2.0)
    shares = np.mean(found == best, axis=0)
    assert shares.sum() == 1
    np.testing.assert_allclose(shares, odds / odds.sum(), atol=0.03)
    np.testing.assert_array_equal(continuer.extend(ids, 1, samples=4000, seed=1), found)
    assert np.any(continuer.extend(ids, 1, samples=4000, seed=2) != found)


def write(folder, config=CONFIG):
    tiny.write(folder, WORDS, config)
    network = masked_lm.MaskedLM().network(config, seed=3)
    weights = {v.path: v.numpy() for v in network.weights}
    checkpoint.write_bundle(str(folder / "model.ckpt-1"), weights)
    return network


def options(folder, **changes):
    given = {
        "init_checkpoint": str(folder / "model.ckpt-1"),
        "vocab_file": str(folder / "vocab.txt"),
        "bert_config_file": str(folder / "config.json"),
        "text": "cat",
    }
    return continue_text.Options(**given | changes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    write(folder)
    return folder


def test_lines_are_continued_up_to_the_last_position(folder, capsys, monkeypatch):
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"cat sat\ncat undo\n"))
    )
    given = options(folder, text=None, temperature=5.0, num_samples=20)
    continue_text.main(given)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 40
    assert all(line.startswith("cat sat") for line in lines[:20])
    assert all(line.startswith("cat undo") for line in lines[20:])
    added = " ".join(lines).split()
    assert {word for word in added if "un" in word} >= {"un", "undo"}
    assert not any("[" in word or "##" in word for word in added)
    # Each has its start and up to seven more, fewer after [SEP].
    lengths = {len(line.replace("do", " do").split()) for line in lines}
    assert max(lengths) == 7 and min(lengths) < 7


def test_text_outside_the_vocabulary_is_pointed_out(folder, capsys):
    continue_text.main(options(folder, text="cat \u00e6 sat"))
    assert "text 1: 1 of 3 tokens are not in the vocabulary" in capsys.readouterr().err
    continue_text.main(options(folder, text="cat sat"))
    assert not capsys.readouterr().err


def test_the_start_token_can_be_left_out(folder, capsys):
    found = []
    for start_token in (True, False):
        continue_text.main(options(folder, start_token=start_token, num_tokens=3))
        found.append(capsys.readouterr().out)
    assert found[0] != found[1]


def test_without_such_a_token_it_has_to_be_left_out(tmp_path, capsys):
    write(tmp_path, dataclasses.replace(CONFIG, vocab_size=1000))
    (tmp_path / "vocab.txt").unlink()  # another model's
    given = {"vocab_file": str(tests.GOLDEN / "sentencepiece" / "xlnet.model")}
    with pytest.raises(UserError, match="not begin with a token .*--start_token=false"):
        continue_text.main(options(tmp_path, **given))
    continue_text.main(options(tmp_path, **given, start_token=False, num_tokens=2))
    assert capsys.readouterr().out.startswith("cat")


def test_the_pieces_of_gpts_own_vocabulary_become_words(tmp_path, capsys):
    write(
        tmp_path,
        dataclasses.replace(CONFIG, vocab_size=982, max_position_embeddings=16),
    )
    (tmp_path / "vocab.txt").unlink()  # another model's
    given = {
        "vocab_file": str(tests.GOLDEN / "gpt_bpe" / "encoder_bpe_40000.json"),
        "text": "The cat's",
    }
    continue_text.main(options(tmp_path, temperature=9.0, num_samples=300, **given))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 300
    assert all(line.startswith("The cat's ") for line in lines)
    # 11 pieces are added, which are fewer words.
    assert len(" ".join(lines).split()) < 300 * (2 + 9)
    for mark in ("</w>", "_start_", "_delimiter_", "_classify_", "<unk>"):
        assert not any(mark in line for line in lines)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_tokens": 0}, "--num_tokens=0: must be at least 1"),
        ({"temperature": -1.0}, "--temperature=-1.0: must be at least 0"),
        ({"top_k": 3}, "--top_k has no effect without --temperature"),
        ({"temperature": 1.0, "seed": -1}, "--seed=-1: must be at least 0"),
        ({"text": "cat " * 8}, "text 1: 9 tokens leave no room .*8 positions"),
        ({"text": "", "start_token": False}, "text 1: has no tokens"),
    ],
)
def test_refusals(folder, changes, message):
    with pytest.raises(UserError, match=message):
        continue_text.main(options(folder, **changes))


def test_standard_input_must_be_utf8(folder, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"cat\n\xff\n")))
    with pytest.raises(UserError, match=":2: not UTF-8"):
        continue_text.main(options(folder, text=None, num_tokens=1))


def test_only_a_causal_model_continues(tmp_path):
    write(tmp_path, tiny.config(vocab_size=12))
    with pytest.raises(UserError, match="attention_direction is 'both', but only"):
        continue_text.main(options(tmp_path))
    (tmp_path / "run.json").write_text('{"objective": "masked_lm"}')
    config = tiny.config(vocab_size=12, attention_direction="left_to_right")
    (tmp_path / "config.json").write_text(config.to_json_string())
    with pytest.raises(UserError, match="--objective=masked_lm, which does not"):
        continue_text.main(options(tmp_path))
    (tmp_path / "run.json").write_text('{"objective": "next_token"}')
    continue_text.main(options(tmp_path, num_tokens=2))
