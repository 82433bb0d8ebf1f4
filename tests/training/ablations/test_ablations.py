"""Ablations: what is planned, how cells run and continue, and what is reported."""

import dataclasses
import importlib
import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest
from absl import flags as absl_flags

import options
import run_ablations
import tests
from modeling.encoders import architectures
from tests import jobs, tiny
from text.errors import UserError
from training.ablations import cells, page, plan
from training.ablations.tables import TABLES


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder with text and a task of each kind; the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in ("text.txt", "held_out.txt", "vocab.txt"):
        content = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n"
        (tmp_path / name).write_text(content)
    for name in (
        "SST-2/train.tsv",
        "SST-2/dev.tsv",
        "questions/train-v1.1.json",
        "questions/dev-v1.1.json",
        "names/train.txt",
        "names/dev.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    return tmp_path


ALL_TASKS = ["SST-2:SST-2", "SQuAD:questions", "NER:names"]


def given(**changes):
    return run_ablations.Options(
        **{
            "table": ["5"],
            "input_file": ["text.txt"],
            "held_out_file": ["held_out.txt"],
            "vocab_file": "vocab.txt",
            "tasks": ALL_TASKS,
        }
        | changes
    )


def planned(**changes) -> plan.Plan:
    return run_ablations.make_plan(given(**changes))


def flag(cell: cells.Cell, name: str) -> str | None:
    """The value that counts: the last one."""
    values = [w.partition("=")[2] for w in cell.words if w.startswith(f"--{name}=")]
    return values[-1] if values else None


def by_name(found: plan.Plan) -> dict[str, cells.Cell]:
    return {cell.name: cell for cell in found.cells}


# === The plan ========================================================================


@pytest.mark.parametrize("table", [*TABLES, "default"])
def test_every_script_takes_the_flags_of_its_cells(data, table):
    if table == "default":
        chosen = run_ablations.Options(table=["6"], num_train_steps=100)
    else:
        chosen = given(table=[table], num_train_steps=100)
    for cell in run_ablations.make_plan(chosen).cells:
        script = importlib.import_module(cell.script.removesuffix(".py"))
        values = absl_flags.FlagValues()
        options.define(script.Options, values)
        values([cell.script, *cell.words])
        parsed = options.from_flags(script.Options, values)
        if cell.script == "run_pretraining.py":
            assert parsed.num_warmup_steps == 10


def test_cells_follow_those_that_they_need_and_are_shared_between_tables(data):
    found = planned(table=["5", "8", "figure5"], seeds=[1, 2], num_trials=2)
    done = set()
    for cell in found.cells:
        assert done.issuperset(cell.needs), cell.name
        done.add(cell.name)
    pretrained = [name for name in done if name.startswith("pretraining/")]
    # Three of table 5, five more of table 8; figure 5 has no others.
    assert len(pretrained) == 8 * 2
    assert len({cell.name for cell in found.cells}) == len(found.cells)


def test_a_table_varies_what_it_says_and_nothing_else(data):
    found = by_name(planned(table=["5"]))
    bert, no_nsp, left = (
        found[f"pretraining/{name}/seed_1"]
        for name in ("bert", "no_nsp", "left_to_right")
    )
    differ = {w.partition("=")[0] for w in set(bert.words) ^ set(no_nsp.words)}
    assert differ == {
        "--objective",
        "--output_dir",
        "--bert_config_file",
        "--keep_checkpoints_at",
    }
    assert flag(bert, "input_file") == flag(no_nsp, "input_file")
    assert flag(left, "objective") == "next_token"
    records = found[left.needs[0]]
    assert flag(records, "masking") == "dynamic"
    configs = planned(table=["5"]).configs
    assert configs["left_to_right"].attention_direction == "left_to_right"
    assert configs["no_nsp"] == configs["bert"]
    head = found["fine_tuning/squad/left_to_right-bilstm/seed_1-trial_0"]
    assert (flag(head, "lstm_layers"), flag(head, "lstm_size")) == ("2", "128")
    assert flag(head, "init_checkpoint") == flag(
        found["fine_tuning/squad/left_to_right/seed_1-trial_0"], "init_checkpoint"
    )


@pytest.mark.parametrize("table", TABLES)
def test_each_row_shows_its_own_runs(data, table):
    found = planned(table=[table], seeds=[1, 2])
    for column in found.columns[table]:
        values = [
            value if isinstance(value, dict) else {0: value} for value in column.values
        ]
        shown = [one.cells for value in values for one in value.values()]
        number = 2 if column.title == "perplexity" else 2 * 3
        assert {len(set(names)) for names in shown} == {number}
        names = [name for some in shown for name in some]
        assert len(set(names)) == len(names), column.title


def test_the_masks_of_table_8_are_the_papers():
    shares = [
        tuple(
            round(100 * row.variant.records.get(name, default))
            for name, default in (
                ("mask_share", 0.8),
                ("keep_share", 0.1),
                ("random_share", 0.1),
            )
        )
        for row in TABLES["8"].rows
    ]
    assert shares == [
        (80, 10, 10),
        (100, 0, 0),
        (80, 0, 20),
        (80, 20, 0),
        (0, 20, 80),
        (0, 0, 100),
    ]


def test_sizes_of_bert_base_are_those_of_table_6(data):
    base = {
        "vocab_size": 10,
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
        "type_vocab_size": 2,
    }
    (data / "base.json").write_text(json.dumps(base))
    configs = planned(table=["6"], bert_config_file="base.json").configs
    sizes = [configs[row.variant.name] for row in TABLES["6"].rows]
    assert [
        (c.num_hidden_layers, c.hidden_size, c.num_attention_heads) for c in sizes
    ] == [
        (3, 768, 12),
        (6, 768, 3),
        (6, 768, 12),
        (12, 768, 12),
        (12, 1024, 16),
        (24, 1024, 16),
    ]
    assert sizes[-1].intermediate_size == 4096
    # Of any other size, only what a row names differs.
    other = base | {"hidden_size": 312, "intermediate_size": 1200}
    (data / "base.json").write_text(json.dumps(other))
    configs = planned(table=["6"], bert_config_file="base.json").configs
    assert {configs[n].intermediate_size for n in ("half_layers", "bert")} == {1200}


def test_a_figure_starts_from_checkpoints_that_pretraining_keeps(data):
    found = by_name(planned(table=["figure5"], num_train_steps=1000))
    kept = flag(found["pretraining/bert/seed_1"], "keep_checkpoints_at")
    assert kept == "200,400,600,800,1000"
    early = found["fine_tuning/sst-2/bert-step_400/seed_1-trial_0"]
    assert flag(early, "init_checkpoint").endswith("/output/model.ckpt-400")
    # Table 5 uses the same last one, whichever is asked for first.
    again = by_name(planned(table=["5"], num_train_steps=1000))
    assert flag(again["pretraining/bert/seed_1"], "keep_checkpoints_at") == kept
    few = by_name(planned(table=["figure5"], num_train_steps=2))
    assert flag(few["pretraining/bert/seed_1"], "keep_checkpoints_at") == "1,2"


def test_own_flags_are_passed_on(data):
    found = by_name(
        planned(
            table=["8"],
            do_lower_case=False,
            classifier_flags="--learning_rate=1e-4",
            ner_flags="--learning_rate=2e-4 --word_prefix=en:",
            features_flags="--learning_rate=3e-4",
            seeds=[7],
        )
    )
    classifier = found["fine_tuning/sst-2/masks_0_0_100/seed_7-trial_2"]
    assert flag(classifier, "learning_rate") == "1e-4"
    assert flag(classifier, "do_lower_case") == "false"
    assert flag(classifier, "seed") == "2007"
    tagger = found["fine_tuning/ner/bert/seed_7-trial_0"]
    assert flag(tagger, "learning_rate") == "2e-4"
    features = found["fine_tuning/ner/bert-features_concat_last_four/seed_7-trial_0"]
    assert flag(features, "learning_rate") == "3e-4"
    assert flag(features, "word_prefix") == "en:"
    assert flag(found["records/default/train"], "do_lower_case") == "false"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"table": ["9"]}, "--table=9: must be any of 5, 6, 7, 8, figure5, roberta1"),
        ({"table": ["5", "5"]}, "--table: an item is repeated"),
        ({"tasks": ["SST-2"]}, "--tasks=SST-2: must be NAME:FOLDER"),
        ({"tasks": ["sst3:SST-2"]}, "with a NAME of cola, sst-2, .*custom"),
        ({"tasks": ["AX:SST-2"]}, "with a NAME of cola, sst-2, .*custom"),
        ({"tasks": ["NER:SST-2"]}, "SST-2 must contain one train.txt, not 0"),
        ({"tasks": ["custom:names"]}, "names must contain one train.tsv, not 0"),
        ({"tasks": ["SST-2:nowhere"]}, "nowhere is not a folder"),
        ({"tasks": ["RTE:names"]}, "names must contain one train.tsv, not 0"),
        ({"tasks": ["SQuAD:names"]}, r"must contain one train\*.json, not 0"),
        (
            {"table": ["7"], "tasks": ["SST-2:SST-2"]},
            "--table=7 needs in --tasks: NER",
        ),
        ({"table": ["6"], "held_out_file": []}, "need --held_out_file"),
        ({"max_seq_length": 600, "bert_config_file": "c.json"}, "has only 512 pos"),
        ({"classifier_flags": "--seed=3"}, "--classifier_flags: --seed is set by"),
        ({"pretraining_flags": "--flagfile=x"}, "--flagfile is set by the plan"),
        ({"output_dir": "out[1]"}, "--output_dir=out.1.: must not be empty or contain"),
        (
            {"bert_config_file": "left.json"},
            "left.json: sets attention_direction or po",
        ),
        (
            {"table": ["6"], "bert_config_file": "odd.json"},
            "variant with num_hidden_layers=2, num_attention_heads=3, .*hidden_size is 11",
        ),
        ({"ner_flags": "word_prefix=en:"}, "'word_prefix=en:' is not a flag"),
        ({"squad_flags": "'--a"}, "--squad_flags='--a: No closing quotation"),
        ({"seeds": [1000]}, "--seeds: must be whole numbers from 0 to 999"),
        (
            {"bert_config_file": "c.json", "vocab_file": None},
            "--vocab_size=8000: more than vocab_size=10 of c.json",
        ),
        ({"input_file": ["no.txt"]}, "no.txt"),
        ({"input_file": [], "held_out_file": []}, "--tasks needs --input_file"),
        ({"table": ["7"], "bert_config_file": "c.json"}, "the last 4 layers, but"),
    ],
)
def test_what_cannot_be_planned_is_refused(data, changes, message):
    config = {"vocab_size": 10, "num_hidden_layers": 2, "type_vocab_size": 2}
    (data / "c.json").write_text(json.dumps(config))
    left = config | {"attention_direction": "left_to_right"}
    (data / "left.json").write_text(json.dumps(left))
    odd = {"num_hidden_layers": 4, "hidden_size": 11, "num_attention_heads": 11}
    (data / "odd.json").write_text(json.dumps(config | odd))
    with pytest.raises(UserError, match=message):
        planned(**changes)


def test_without_flags_everything_is_made_from_installed_packages(data):
    found = run_ablations.make_plan(run_ablations.Options(table=["5"]))
    assert [cell.script for cell in found.cells[:2]] == [
        "collect_documentation.py",
        "build_vocab.py",
    ]
    task = by_name(found)["fine_tuning/package/bert/seed_1-trial_0"]
    made = flag(found.cells[0], "package_dir")
    assert flag(task, "data_dir") == made and made.startswith("{root}/")


# === Cells ===========================================================================

SCRIPT = """
import pathlib, sys, time
output, what = pathlib.Path(sys.argv[1]), sys.argv[2]
if sys.argv[-1] == "--only_check_args":
    sys.exit("script.py: error: no such word" if what == "unknown" else 0)
with open(output.parent.parent / "order.txt", "a") as file:
    file.write(output.parent.name + "\\n")
print("working")
if what == "fail":
    sys.exit("script.py: error: it failed")
if what == "wait":
    time.sleep(60)
if what == "nothing":
    sys.exit()
(output / "numbers.json").write_text('{"eval_f1": %s}' % what)
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A plan's folder, with scripts next to it that take no time."""
    (tmp_path / "script.py").write_text(SCRIPT)
    monkeypatch.setattr(cells, "_ROOT", str(tmp_path))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def cell(name, what="1", needs=(), **changes):
    words = (f"{{root}}/{name}/output", what)
    given = {"kind": "script", "needs": needs, "numbers": "numbers.json"} | changes
    return cells.Cell(name, "script.py", words, **given)


def run(root, plan_cells, number=1):
    known = {c.name: done for c in plan_cells if (done := cells.finished(root, c))}
    found = {}
    runner = cells.Runner(
        str(root), number, lambda c, done: found.update({c.name: done["numbers"]})
    )
    return runner.run(plan_cells, known), found


def order(root):
    return (root / "order.txt").read_text().split()


@pytest.mark.parametrize("number", [1, 2])
def test_cells_run_once_after_those_that_they_need(root, capfd, number):
    some = [cell("c", "3", needs=("a", "b")), cell("a"), cell("b", "2", needs=("a",))]
    failures, found = run(root, some, number)
    assert not failures and order(root) == ["a", "b", "c"]
    assert found == {"a": {"eval_f1": 1}, "b": {"eval_f1": 2}, "c": {"eval_f1": 3}}
    assert "[2/3" in capfd.readouterr().out
    assert run(root, [*some, cell("d", needs=("c",))])[1].keys() == {"d"}
    assert order(root) == ["a", "b", "c", "d"]
    assert "3 of 4 cells have finished earlier" in capfd.readouterr().out


def test_other_flags_than_those_of_a_finished_cell_are_refused(root):
    run(root, [cell("a")])
    with pytest.raises(UserError, match="was run with other flags .1, 2."):
        cells.finished(str(root), cell("a", "2"))


def test_a_failure_stops_only_what_needs_it(root, capfd):
    some = [cell("a", "fail"), cell("b", needs=("a",)), cell("c")]
    failures, found = run(root, some)
    assert found == {"c": {"eval_f1": 1}}
    assert "exited with status 1; its last line: script.py: error: it f" in failures[0]
    assert failures[1:] == ["b: not run"]
    assert "working" in (root / "a" / "log.txt").read_text()


@pytest.mark.parametrize(
    "what, changes, message",
    [
        ("nothing", {}, "No such file"),
        ("2", {"number": "eval_em"}, "numbers.json has no finite eval_em"),
        ("NaN", {"number": "eval_f1"}, "numbers.json has no finite eval_f1"),
    ],
)
def test_without_its_numbers_a_cell_has_failed(root, what, changes, message):
    failures, found = run(root, [cell("a", what, **changes), cell("b")])
    assert len(failures) == 1 and message in failures[0] and "b" in found
    assert not (root / "a" / "cell.json").exists()


def test_a_folder_may_be_spelled_in_another_way_and_moved(root, monkeypatch):
    run(root, [cell("a")])
    monkeypatch.chdir(root.parent)
    root.rename(root.parent / "moved")
    assert cells.finished("moved/", cell("a"))["numbers"] == {"eval_f1": 1}
    command = cell("a").command("moved/")
    assert command[2] == str(root.parent / "moved" / "a" / "output")


def test_a_damaged_file_is_named(root):
    run(root, [cell("a")])
    (root / "a" / "cell.json").write_text("{}")
    with pytest.raises(UserError, match="a/cell.json: damaged .*; delete it"):
        cells.finished(str(root), cell("a"))


def test_flags_that_a_script_refuses_are_found_before_anything_runs(root):
    with pytest.raises(UserError, match="bad flags: script.py: error: no such word"):
        cells.check_flags(str(root), [cell("a", "unknown"), cell("b")])
    # Frozen encoders have flags of their own.
    frozen = cell("c", "unknown")
    frozen = dataclasses.replace(frozen, words=(*frozen.words, "--features=last"))
    with pytest.raises(UserError, match="bad flags"):
        cells.check_flags(str(root), [cell("b"), frozen])
    cells.check_flags(str(root), [cell("b")])
    assert not (root / "order.txt").exists()


def test_only_numbers_remain_where_nothing_else_is_needed(root):
    run(root, [cell("a", keeps_output=False), cell("b")])
    assert not (root / "a" / "output").exists() and (root / "b" / "output").exists()
    assert cells.finished(str(root), cell("a"))["numbers"] == {"eval_f1": 1}
    (root / "a" / "output").mkdir()  # as if killed between the two
    run(root, [cell("a", keeps_output=False)])
    assert not (root / "a" / "output").exists()


WAITING = """
import sys
sys.path.insert(0, sys.argv[1])
from training.ablations import cells
cells._ROOT = sys.argv[2]
words = ("{root}/a/output", "wait")
cell = cells.Cell("a", "script.py", words, kind="script")
cells.Runner(sys.argv[3], 1, print).run([cell], {})
"""


def test_asked_to_end_it_ends_its_processes(root):
    line = [sys.executable, "-c", WAITING, tests.ROOT, root.parent, root]
    process = jobs.started(list(map(str, line)))
    while not (root / "order.txt").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    begun = time.monotonic()
    process.communicate()  # until no process has its stdout any more
    assert time.monotonic() - begun < 30 and process.returncode
    assert not (root / "a" / "cell.json").exists()


def test_a_process_that_outlived_its_parent_is_waited_for(root, capfd):
    folder = root / "a"
    folder.mkdir()
    lock = os.open(folder / ".cell~bert~lock", os.O_CREAT | os.O_RDWR)
    cells.fcntl.flock(lock, cells.fcntl.LOCK_EX)
    orphan = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(1)"], pass_fds=[lock]
    )
    os.close(lock)
    failures, found = run(root, [cell("a")])
    assert orphan.poll() == 0 and not failures and found
    assert "its process still runs since an earlier start" in capfd.readouterr().out


# === The results =====================================================================


def written(data, table, numbers, **changes):
    """The files after the first cells of each kind have these numbers."""
    found = planned(table=[table], seeds=[1, 2], num_trials=1, **changes)
    (data / "out").mkdir(exist_ok=True)
    results = page.Results(str(data / "out"), found, {"updates": "5"})
    for one in found.cells:
        if one.name in numbers:
            results.cells[one.name] = {"numbers": numbers[one.name], "seconds": 1.0}
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
    assert list(both["8"]["rows"][0]["here"]) == ["SST-2", "NER", "NER features"]


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


def test_a_folder_of_others_is_not_touched(data):
    (data / "out").mkdir()
    (data / "out" / "mine.txt").write_text("")
    with pytest.raises(UserError, match="contains files that this script did not make"):
        run_ablations.main(given(output_dir="out"))
    assert [path.name for path in (data / "out").iterdir()] == ["mine.txt"]


def test_another_config_than_that_of_the_folder_is_refused(data):
    found = planned()
    run_ablations.make_folder("out")
    run_ablations.write_configs("out", found)
    run_ablations.make_folder("out")
    run_ablations.write_configs("out", found)
    configs = {"bert": architectures.config_from_dict({"vocab_size": 10})}
    other = plan.Plan(found.cells, configs, found.columns)
    with pytest.raises(UserError, match="out/configs/bert.json: differs from what"):
        run_ablations.write_configs("out", other)


# === From text to a page ==============================================================


class InThisProcess:
    """Stands for a process; runs a script's main here."""

    returncode = 0

    def __init__(self, command, **_):
        name = pathlib.Path(command[1]).stem
        script = importlib.import_module(name)
        values = absl_flags.FlagValues()
        options.define(script.Options, values)
        values([name, *(word for word in command[2:] if "only_check" not in word)])
        given = options.from_flags(script.Options, values)
        if "--only_check_args" not in command:
            script.main(given)

    def communicate(self):
        return "", ""

    def wait(self):
        return 0


@pytest.mark.slow
@pytest.mark.usefixtures("untraced")
def test_a_table_is_filled_from_text_and_tasks(data, monkeypatch, capsys):
    monkeypatch.setattr(cells.subprocess, "Popen", InThisProcess)
    lines = [f"The {word} is here ." for word in "one two three four".split()]
    (data / "text.txt").write_text("\n".join(lines * 10) + "\n\n" + "\n".join(lines))
    rows = "".join(f"{line}\t{i % 2}\n" for i, line in enumerate(lines))
    for split in ("train", "dev"):
        (data / f"SST-2/{split}.tsv").write_text(f"sentence\tlabel\n{rows}")
    chosen = {
        "table": ["figure5", "6"],
        "tasks": ["SST-2:SST-2"],
        "held_out_file": ["text.txt"],
        "output_dir": "out",
        "num_trials": 1,
        "num_train_steps": 2,
        "pretraining_flags": "--train_batch_size=2",
        "classifier_flags": "--num_train_epochs=1 --train_batch_size=4",
        "bert_config_file": "config.json",
    }
    words = "the is here . one two three four".split()
    tiny.write(data, words, tiny.config(max_position_embeddings=64))
    run_ablations.main(given(**chosen))
    tables = json.loads((data / "out" / "ablations.json").read_text())["tables"]
    assert "Written to out/ablations.html" in capsys.readouterr().out
    assert tables["6"]["rows"][5]["label"] == "L=2, H=24, A=3"
    for row in tables["6"]["rows"]:
        assert row["here"]["perplexity"]["mean"] > 1
        assert 0 <= row["here"]["SST-2"]["mean"] <= 100
    curve = tables["figure5"]["rows"][1]["here"]["SST-2"]
    assert all(point["runs"] for point in curve.values()) and set(curve) == {"1", "2"}
    # Nothing is run again.
    monkeypatch.setattr(cells.subprocess, "Popen", None)
    run_ablations.main(given(**chosen))
