"""An optimizer is an algorithm, a schedule and a row for each."""

import keras
import numpy as np
import pytest
from keras import ops

from errors import UserError
from modeling.optimizers import table
from modeling.optimizers.table import OptimizerSettings
from tests import jobs, pretraining
from tests.programs import lion


@pytest.mark.parametrize("optimizer", ["lamb", "adagrad", "adafactor"])
@pytest.mark.parametrize("schedule", table.SCHEDULES)
def test_every_algorithm_takes_every_schedule(optimizer, schedule):
    settings = OptimizerSettings(optimizer, schedule)
    rates = [float(settings.learning_rate(step, 0.125, 20, 5)) for step in range(20)]
    assert 0.0 <= min(rates) and 0.05 < max(rates) <= 0.125
    alone = OptimizerSettings("adam", schedule)
    assert rates == [float(alone.learning_rate(s, 0.125, 20, 5)) for s in range(20)]
    variable = keras.Variable(np.ones(3, np.float32), name="kernel")
    settings.make([variable]).apply([ops.ones(3)], rates[9], 9)
    assert np.all(variable.numpy() < 1.0)


def test_every_name_has_an_algorithm_and_a_schedule():
    for name in table.optimizers():
        assert OptimizerSettings(name).schedule in table.SCHEDULES
        assert OptimizerSettings(name).make([]).variables == []


@pytest.mark.exhaustive
def test_an_optimizer_of_one_file_trains_and_goes_on(
    tmp_path, capsys, monkeypatch, untraced
):
    monkeypatch.setitem(table.ALGORITHMS, "lion", lion.ROW)
    given = {"optimizer": "lion", "save_checkpoints_steps": 2}
    weights = pretraining.run_twice(tmp_path, capsys, **given)
    assert np.any(weights["bert.pooler.dense.kernel.lion"])
    with pytest.raises(UserError, match="--optimizer=lion does not have it, only adam"):
        pretraining.run(tmp_path, optimizer="lion", adam_beta_2=0.98)


def test_an_optimizer_of_one_file_is_a_value_of_the_flag(tmp_path):
    given = pretraining.flags(tmp_path, optimizer="lion", only_check_args=True)
    done = jobs.finished(jobs.command("tests/programs/lion.py", given))
    assert "the flags are valid" in done.stdout, done.stderr
