"""Memory between updates: handed from row to row, divided, saved and resumed exactly."""

import numpy as np

import run_pretraining
from training.backend import tf
from training.run import capacity, distribution, loop
from family.xlnet.encoder import XlnetConfig
from family.xlnet.permuted import DrawSpans, Permuted
from files import memory
from tests import pretraining
from tests.log import Log
from tests.training.run.test_capacity import refused

ROWS, LENGTH, MEMORY, REUSE = 4, 16, 12, 8
CONFIG = XlnetConfig(
    *(40, 16, 2, 2, 8, 16, "gelu", True),
    hidden_dropout_prob=0.1,
    attention_probs_dropout_prob=0.1,
)
RNG = np.random.default_rng(0)
BATCHES = {
    "input_ids": RNG.integers(7, 40, (6, ROWS, LENGTH)).astype(np.int32),
    "input_mask": np.ones((6, ROWS, LENGTH), np.int32),
    "segment_ids": np.zeros((6, ROWS, LENGTH), np.int32),
    "row_numbers": np.arange(6 * ROWS, dtype=np.int32).reshape(6, ROWS),
}


def data(first, part):
    return tf.data.Dataset.from_tensor_slices(BATCHES).repeat().skip(first)


def made(config=CONFIG, mem_len=MEMORY, **settings):
    objective = Permuted(mem_len=mem_len, reuse_len=REUSE)
    draw = DrawSpans(
        alpha=6,
        beta=1,
        reuse_len=REUSE,
        counts=np.full(LENGTH + 1, 3),
        max_predictions_per_seq=3,
        mask_share=0.8,
        random_share=0.1,
        whole_words=False,
        vocab_size=40,
        mask_id=6,
        special_ids=(3, 4),
    )
    given = {"num_train_steps": 4, "save_every_steps": 2, "log_every_steps": 4}
    return loop.Trainer(
        distribution.make("one"),
        lambda: objective.network(config, seed=1),
        objective,
        loop.LoopSettings(
            num_warmup_steps=1, learning_rate=1e-2, batch_size=ROWS, **given | settings
        ),
        [draw],
    )


def values(trainer):
    return {name: v.numpy() for name, v in trainer.variables.items()}


def test_each_row_remembers_what_was_before_it(untraced):
    without_dropout = XlnetConfig(
        *(40, 16, 2, 2, 8, 16, "gelu", True),
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    whole = made(without_dropout, save_every_steps=0)
    divided = made(without_dropout, save_every_steps=0, accumulation_steps=2)
    for trainer in (whole, divided):
        trainer.train(data, "nowhere", Log())
    found, expected = values(divided), values(whole)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)
    memory = expected["training/memory"]
    # The lowest layer's is the words themselves, of the last update and the one before.
    table = expected["model/transformer/word_embedding/lookup_table"]
    ids = np.concatenate([BATCHES["input_ids"][n][:, :REUSE] for n in (2, 3)], axis=1)
    np.testing.assert_allclose(memory[:, 0], table[ids[:, -MEMORY:]], atol=0.05)
    assert np.abs(memory[:, 0] - table[ids[:, :MEMORY]]).max() > 0.05


def test_without_memory_nothing_is_handed_on():
    trainer = made(mem_len=0)
    assert not trainer.row_state
    assert not any(name.startswith("training/") for name in trainer.variables)


def test_memory_of_earlier_rows_that_cannot_fit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "total", lambda: 100 * 10**9)
    monkeypatch.setattr(capacity, "_has_accelerators", lambda: False)
    config = XlnetConfig(9, 16, 1, 2, 8, 16, "gelu", True)
    (tmp_path / "records").touch()  # is found before it is read
    flags = pretraining.flags(tmp_path, config, input_file=[str(tmp_path / "records")])
    changes = {"objective": "permuted", "train_batch_size": 2**12, "mem_len": 2**20}
    message = "train_batch_size=4096 with --mem_len=1048576 needs"
    refused(message, run_pretraining, flags, **changes)
