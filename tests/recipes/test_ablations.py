"""The whole script, from text to a page."""

import importlib
import json
import os
import pathlib
import subprocess

import pytest
from absl import flags as absl_flags

import command_line
import tests
from errors import UserError, duration
from modeling.architectures import table
from recipes import ablations
from recipes.comparisons import cells, plan
from recipes.comparisons.paper_tables import TABLES
from tests import test_remote_files, tiny
from tests.recipes.plans import given, needs_all_relatives, planned


def test_another_config_than_that_of_the_folder_is_refused(data):
    found = planned()
    ablations.write_configs("out", found)
    ablations.write_configs("out", found)
    configs = {"bert": table.config_from_dict({"vocab_size": 10})}
    other = plan.Plan(found.cells, configs, found.columns)
    with pytest.raises(UserError, match="out/configs/bert.json: differs from what"):
        ablations.write_configs("out", other)


class InThisProcess:
    """Stands for a process; runs a script's main here."""

    returncode = 0

    def __init__(self, command, **_):
        self.pid, self._is_over = os.getpid(), False
        path = pathlib.Path(command[1]).relative_to(tests.ROOT)
        name = ".".join(path.with_suffix("").parts)
        script = importlib.import_module(name)
        values = absl_flags.FlagValues()
        command_line.define(script.Options, values)
        values([name, *(word for word in command[2:] if "only_check" not in word)])
        given = command_line.from_flags(script.Options, values)
        if "--only_check_args" not in command:
            script.main(given)

    def communicate(self):
        return "", ""

    def wait(self, timeout):
        if not self._is_over:  # so that its memory is looked at
            self._is_over = True
            raise subprocess.TimeoutExpired("", timeout)
        return 0


@pytest.fixture
def chosen(data, monkeypatch, untraced):
    """Flags of small runs in this process, whose text and task are in the folder."""
    monkeypatch.setattr(cells.subprocess, "Popen", InThisProcess)
    lines = [f"The {word} is here ." for word in "one two three four".split()]
    (data / "text.txt").write_text("\n".join(lines * 10) + "\n\n" + "\n".join(lines))
    rows = "".join(f"{line}\t{i % 2}\n" for i, line in enumerate(lines))
    for split in ("train", "dev"):
        (data / f"SST-2/{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    words = "the is here . one two three four".split()
    tiny.write(data, words, tiny.config(max_position_embeddings=64))
    return {
        "tasks": ["SST-2:SST-2"],
        "output_dir": "out",
        "num_trials": 1,
        "num_train_steps": 2,
        "records_flags": "--dupe_factor=2 --num_workers=1",
        "pretraining_flags": "--train_batch_size=2",
        "classifier_flags": "--num_train_epochs=1 --train_batch_size=4",
        "bert_config_file": "config.json",
    }


@pytest.mark.exhaustive
def test_a_table_is_filled_from_text_and_tasks(data, chosen, monkeypatch, capsys):
    # The largest model and none; test_plan.py has the sizes of all.
    few = TABLES["6"]._replace(rows=TABLES["6"].rows[-2:])
    monkeypatch.setitem(TABLES, "6", few)
    chosen |= {"table": ["figure5", "6"], "held_out_file": ["text.txt"]}
    ablations.main(given(**chosen))
    tables = json.loads((data / "out" / "ablations.json").read_text())["tables"]
    assert "Written to out/ablations.html" in capsys.readouterr().out
    assert tables["6"]["rows"][0]["label"] == "L=2, H=24, A=3"
    for row in tables["6"]["rows"]:
        if row["label"] == "Not pre-trained":
            assert row["here"]["perplexity"]["mean"] is None
        else:
            assert row["here"]["perplexity"]["mean"] > 1
        assert 0 <= row["here"]["SST-2"]["mean"] <= 100
    curve = tables["figure5"]["rows"][1]["here"]["SST-2"]
    assert all(point["runs"] for point in curve.values()) and set(curve) == {"1", "2"}
    # Encoders are kept, for other tables; of fine-tuned models only the results are.
    weights = {str(path) for path in data.glob("out/**/*.data-*")}
    assert weights and all("/pretraining/" in path for path in weights)
    assert list(data.glob("out/fine_tuning/**/mistakes.html"))
    # Nothing is run again.
    monkeypatch.setattr(cells.subprocess, "Popen", None)
    ablations.main(given(**chosen))


@needs_all_relatives
@pytest.mark.exhaustive
def test_the_family_is_compared_with_as_many_updates_and_as_much_time(
    data, chosen, monkeypatch
):
    costs, speeds = cells._costs, {"family_xlnet": 10.0, "family_gpt": 30.0}

    def of_one_machine(output, memory):
        """An update of XLNet takes twice as long as one of BERT, and so on."""
        found = costs(output, memory)
        kind, name = output.split("/")[1:3]
        if kind == "pretraining":
            assert found[cells.SPEED] > 0
            found[cells.SPEED] = speeds.get(name, 20.0)
        return found

    monkeypatch.setattr(cells, "_costs", of_one_machine)
    chosen |= {"table": ["family"], "held_out_file": [], "max_seq_length": 16}
    ablations.main(given(**chosen))
    tables = json.loads((data / "out" / "ablations.json").read_text())["tables"]
    columns = ["parameters", "tokens/s", "memory", "SST-2", "SST-2 same time"]
    for row in tables["family"]["rows"]:
        assert list(row["here"]) == columns
        lacking = {t for t, value in row["here"].items() if value["mean"] is None}
        is_baseline = row["label"] == "Not pre-trained"
        assert lacking == ({"tokens/s", "memory"} if is_baseline else set()), row[
            "label"
        ]
    others = {path.name for path in data.glob("out/*/*/*-updates_*")}
    assert others == {
        *("seed_1-updates_1", "family_xlnet-updates_1"),
        *("seed_1-updates_3", "family_gpt-updates_3"),
    }


def test_a_dry_run_lists_commands_and_time_and_writes_nothing(
    data, monkeypatch, capsys
):
    monkeypatch.setattr(cells, "check_flags", lambda *_: None)
    chosen = given(dry_run=True, output_dir="out", seeds=[1, 2])
    before = sorted(data.rglob("*"))
    assert ablations.main(chosen) == 0
    *commands, number, time = capsys.readouterr().out.splitlines()
    found = planned(output_dir="out", seeds=[1, 2]).cells
    assert len(commands) == len(found)
    for line, cell in zip(commands, found, strict=True):
        assert line.startswith(f"{cell.name}: ") and f"/{cell.script} " in line
    assert number == f"{len(found)} cells; 0 of them have finished"
    assert "is known once one of their kind has finished" in time
    assert sorted(data.rglob("*")) == before
    # After one of each kind, the rest can be told.
    done = {cell.kind: cell for cell in found}.values()
    for cell in done:
        (data / "out" / cell.name).mkdir(parents=True)
        content = json.dumps({"words": list(cell.words), "seconds": 600.0})
        (data / "out" / cell.name / "cell.json").write_text(content)
    assert ablations.main(chosen) == 0
    *commands, _, time = capsys.readouterr().out.splitlines()
    assert len(commands) == len(found) - len(done)
    assert time == f"the run: about {duration(600.0 * len(commands))}"


@pytest.mark.parametrize("flag", ["bert_config_file", "output_dir"])
def test_an_address_that_nothing_opens_is_refused(flag):
    test_remote_files.check_refused(ablations, flag, {"table": ["5"]})
