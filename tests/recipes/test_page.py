"""What is made of the results."""

import json
import math

import pytest

from errors import UserError
from recipes import ablations
from recipes.comparisons import page
from tests.recipes.plans import given, planned


def written(data, table, numbers, **changes):
    """The files after the first cells of each kind have these numbers."""
    found = planned(table=[table], seeds=[1, 2], num_trials=1, **changes)
    (data / "out").mkdir(exist_ok=True)
    results = page.Results(str(data / "out"), found, {"updates": "5"})
    for one in found.cells:
        if one.name in numbers:
            results.cells[one.name] = {"results": numbers[one.name]}
    return results.write()


def test_results_are_means_of_all_runs_next_to_the_papers_numbers(data):
    tuned = "fine_tuning/sst-2/bert/seed_{}-trial_0"
    numbers = {
        tuned.format(1): {"eval_accuracy": 0.8},
        tuned.format(2): {"eval_accuracy": 0.82},
        "fine_tuning/squad/no_nsp/seed_1-trial_0": {"eval_f1": 12.5},
    }
    rows = written(data, "5", numbers)["5"]["rows"]
    first = rows[0]["here"]["SST-2"]
    assert first["mean"] == pytest.approx(81.0)
    assert first["deviation"] == pytest.approx(math.sqrt(2))
    assert rows[0]["published"]["SST-2"] == 92.7
    assert rows[1]["here"]["SQuAD"]["runs"] == [12.5]
    assert rows[1]["here"]["SST-2"]["mean"] is None
    html = (data / "out" / "ablations.html").read_text()
    assert "81.0 ± 1.4" in html and "12.5 (1 of 2 runs)" in html and "92.7" in html
    # Another table in the same folder keeps this one.
    written(data, "8", {})
    both = json.loads((data / "out" / "ablations.json").read_text())["tables"]
    assert list(both) == ["5", "8"] and both["5"]["rows"] == rows
    assert list(both["8"]["rows"][0]["here"]) == [
        *("SST-2", "NER", "UD", "NER features", "UD features")
    ]


def test_the_flags_of_all_scripts_that_run_are_on_the_page(data):
    changes = {"tasks": ["SST-2:SST-2"], "classifier_flags": "--num_train_epochs=7"}
    facts = ablations._facts(given(**changes), planned(**changes))
    assert facts["classifier"] == "--num_train_epochs=7"
    assert facts["records"] == "--dupe_factor=5" and "squad" not in facts


def test_perplexity_is_that_of_the_held_out_text(data):
    name = "pretraining/half_layers/seed_1"
    rows = written(data, "6", {name: {"masked_lm_loss": math.log(5.24)}})["6"]["rows"]
    assert rows[2]["here"]["perplexity"]["mean"] == pytest.approx(5.24)


def test_a_figure_is_a_picture_with_a_point_for_each_step(data):
    name = "fine_tuning/sst-2/left_to_right{}/seed_1-trial_0"
    numbers = {
        name.format("-step_200"): {"eval_accuracy": 0.7},
        name.format(""): {"eval_accuracy": 0.75},
    }
    rows = written(data, "figure5", numbers, num_train_steps=1000)["figure5"]["rows"]
    points = {s: v["mean"] for s, v in rows[1]["here"]["SST-2"].items() if v["runs"]}
    assert points == {"200": pytest.approx(70), "1000": pytest.approx(75)}
    picture = (data / "out" / "figure5.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    assert "data:image/png;base64," in (data / "out" / "ablations.html").read_text()


def test_results_of_others_are_named(data):
    (data / "out").mkdir()
    (data / "out" / "ablations.json").write_text('{"tables": {"5": {"rows": []}}}')
    with pytest.raises(UserError, match="ablations.json: was not written by this vers"):
        written(data, "8", {})
