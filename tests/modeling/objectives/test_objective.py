"""The contract of an objective: a wrapper forwards all of it."""

import pkgutil

import numpy as np
import pytest

from errors import UserError
from modeling.objectives import objective as contract
from modeling.objectives import table
from modeling.objectives.objective import Objective, Wrapped
from modeling.objectives.table import OBJECTIVES
from serving import forms
from tests import pretraining
from tests.records import make_records


class Telling(Objective):
    """Has a value of its own for every member."""

    loss_weights = {"loss": 0.5}
    metric_names = ("accuracy",)
    needs = contract.Needs(sentence_task="next_sentence")
    of_whole_batch = True
    exporter = contract.Exporter("masks")
    comparison = contract.Comparison.of("logits")
    state = contract.RowState(lambda config: {"memory": (1,)}, "mem_len")
    summary = contract.perplexity_of("loss")

    @property
    def for_evaluation(self):
        return "another"

    def check(self, config):
        return "checked", config

    def mask_step(self, **settings):
        return "masks", settings

    def network(self, config, *, seed=0, dtype="float32"):
        return config, seed, dtype

    def prepare(self, batch, seed):
        return batch, seed

    def weights(self, batch):
        return "weights", batch

    def losses(self, batch, outputs):
        return "losses", batch, outputs

    def metrics(self, batch, outputs):
        return "metrics", batch, outputs


ARGUMENTS = {
    "mask_step": 0,
    "check": 1,
    "network": 1,
    "weights": 1,
}  # the others have two


def test_there_are_ten_members_and_six_values_that_may_be_absent():
    public = {name for name in dir(Objective) if not name.startswith("_")}
    assert public | {"loss_weights", "metric_names"} == set(contract.MEMBERS)
    assert len(contract.MEMBERS) == 10 + 6


@pytest.mark.parametrize("name", contract.MEMBERS)
def test_a_wrapper_forwards_every_member(name):
    inner = Telling()
    own, found = getattr(inner, name), getattr(Wrapped(inner), name)
    if callable(own) and not isinstance(own, tuple):
        arguments = range(ARGUMENTS.get(name, 2))
        assert found(*arguments) == own(*arguments) is not None
    else:
        assert found is own is not getattr(Objective, name, None)


def test_a_wrapper_may_have_members_of_its_own():
    class Doubled(Wrapped):
        metric_names = ("other",)

        def __init__(self, inner):
            super().__init__(inner)
            self.loss_weights = {k: 2 * v for k, v in inner.loss_weights.items()}

        def weights(self, batch):
            return "doubled", self.inner.weights(batch)

    doubled = Doubled(Wrapped(Telling()))
    assert doubled.loss_weights == {"loss": 1.0} and doubled.metric_names == ("other",)
    assert doubled.weights(3) == ("doubled", ("weights", 3))
    assert doubled.losses(3, 4) == ("losses", 3, 4)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_every_objective_needs_and_exports_is_known(name):
    objective = OBJECTIVES[name].load()
    assert objective.needs.masks in ("any", "drawn", "none")
    assert objective.needs.sentence_task in ("", "next_sentence", "sentence_order")
    if objective.exporter:
        assert pkgutil.resolve_name(forms.FORMS[objective.exporter.form].export)
    assert set(objective.needs.rows) <= {"tokens", "width", "reuse_len"}


def test_an_objective_of_one_file_trains_and_goes_on(
    tmp_path, capsys, monkeypatch, untraced
):
    row = table.ObjectiveRow("tests.programs.random_tokens:RandomTokens")
    monkeypatch.setitem(OBJECTIVES, "random_tokens", row)
    given = {"objective": "random_tokens", "save_checkpoints_steps": 2}
    given["num_train_steps"] = 4
    records = make_records(tmp_path, masking="dynamic")
    given["input_file"] = [records]
    weights = pretraining.run_twice(tmp_path, capsys, **given)
    assert np.any(weights["random/kernel/adam_m"])
    with pytest.raises(UserError, match="--objective=random_tokens has no export"):
        pretraining.run(tmp_path, **given, do_export=True)
    # Records with masks are not for it, and are told apart by what it says that it needs.
    with pytest.raises(
        UserError, match="as they are; write the records with --masking"
    ):
        pretraining.run(tmp_path, **given | {"input_file": [pretraining.RECORDS]})
