"""What is planned for a table, and what is refused."""

import importlib
import json
import os

import pytest
from absl import flags as absl_flags

import command_line
from errors import UserError
from recipes import ablations
from recipes.comparisons import cells
from recipes.comparisons.paper_tables import TABLES
from tests.recipes.plans import (
    by_name,
    flag,
    given,
    needs_all_relatives,
    planned,
    tables,
)


@pytest.mark.parametrize("table", [*tables(), "default"])
def test_every_script_takes_the_flags_of_its_cells(data, table):
    if table == "default":
        chosen = ablations.Options(table=["6"], num_train_steps=100)
    else:
        chosen = given(table=[table], num_train_steps=100)
    for cell in ablations.make_plan(chosen).cells:
        assert os.path.exists(cell.command("out")[1])
        script = importlib.import_module(
            cell.script.removesuffix(".py").replace("/", ".")
        )
        values = absl_flags.FlagValues()
        command_line.define(script.Options, values)
        values([cell.script, *cell.words])
        parsed = command_line.from_flags(script.Options, values)
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


@pytest.mark.parametrize("table", tables())
def test_each_row_shows_its_own_runs(data, table):
    found = planned(table=[table], seeds=[1, 2])
    later = {f"{task} same time" for task in ("SST-2", "SQuAD", "NER", "UD")}
    columns = [c for c in found.columns[table] if c.title not in later]
    assert found.is_whole == (len(columns) == len(found.columns[table]))
    of_pretraining = {"perplexity", "tokens/s", "memory"}
    for column in columns:
        *pretrained, baseline = column.values
        if column.title == "parameters":
            assert len(set(pretrained)) > len(pretrained) / 2
            continue
        is_frozen = column.title.endswith("features")
        for value in baseline.values() if isinstance(baseline, dict) else [baseline]:
            expected = 0 if column.title in of_pretraining or is_frozen else 2 * 3
            assert len(set(value.cells)) == expected
            assert all("/not_pretrained" in name for name in value.cells)
        values = [
            value if isinstance(value, dict) else {0: value} for value in pretrained
        ]
        shown = [one.cells for value in values for one in value.values()]
        number = 2 if column.title in of_pretraining else 2 * 3
        assert {len(set(names)) for names in shown} == {number}
        names = [name for some in shown for name in some]
        assert len(set(names)) == len(names), column.title


@needs_all_relatives
def test_the_same_time_is_that_of_the_first_row(data):
    chosen = {"table": ["family"], "seeds": [1, 2], "num_train_steps": 100}
    finished = {
        name: {"results": {cells.SPEED: {"bert": 40.0, "family_gpt": 20.0}[variant]}}
        for name in by_name(planned(**chosen))
        for folder, variant, seed in [(*name.split("/"), "", "")[:3]]
        if folder == "pretraining"
        and variant in ("bert", "family_gpt")
        # Only the first seed's counts, so that all seeds have as many updates.
        and seed == "seed_1"
    }
    found = by_name(ablations.make_plan(given(**chosen), finished))
    for seed in (1, 2):
        start = found[f"pretraining/family_gpt/seed_{seed}-updates_50"]
        assert flag(start, "num_train_steps") == "50"
        assert flag(start, "num_warmup_steps") == "5"
        task = found[f"fine_tuning/sst-2/family_gpt-updates_50/seed_{seed}-trial_2"]
        assert flag(task, "init_checkpoint") == start.output
        assert start.name in task.needs
    assert not [name for name in found if "bert-updates" in name]
    planned_now = ablations.make_plan(given(**chosen), finished)
    (column,) = (
        c for c in planned_now.columns["family"] if c.title.startswith("SST-2 s")
    )
    labels = [row.label for row in TABLES["family"].rows]
    of_row = dict(zip(labels, column.values, strict=True))
    of_bert, of_gpt, of_electra = (of_row[n] for n in ("BERT", "GPT", "ELECTRA"))
    assert len(of_bert.cells) == len(of_gpt.cells) == 2 * 3
    assert not of_electra.cells and not planned_now.is_whole  # its speed is not known


@needs_all_relatives
def test_t5_is_told_about_the_vocabulary(data):
    found = planned(table=["family"])
    config = found.configs["family_t5"]
    assert (config.eos_token_id, config.attention_head_size) == (3, 32)
    bert = found.configs["bert"]
    assert config.vocab_size == bert.vocab_size + 100  # rows for its sentinels
    cells_ = by_name(found)
    t5, gpt = (cells_[f"pretraining/family_{n}/seed_1"] for n in ("t5", "gpt"))
    assert flag(t5, "vocab_file") == "vocab.txt" and not flag(gpt, "vocab_file")
    assert t5.needs == gpt.needs  # the same records


@needs_all_relatives
def test_modern_bert_is_as_large_as_bert(data):
    found = planned(table=["modern_bert"])
    parameters = next(
        c for c in found.columns["modern_bert"] if c.title == "parameters"
    )
    bert, modern, _ = parameters.values
    assert bert != modern and modern == pytest.approx(bert, rel=0.05)


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
        for row in TABLES["8"].rows[:-1]
    ]
    assert shares == [
        (80, 10, 10),
        (100, 0, 0),
        (80, 0, 20),
        (80, 20, 0),
        (0, 20, 80),
        (0, 0, 100),
    ]


def test_rows_have_as_many_predictions_as_their_rate_asks_for(data):
    found = by_name(planned(table=["masking_rate"], max_predictions_per_seq=20))
    asked = {}
    for row in TABLES["masking_rate"].rows[:-1]:
        cell = found[f"pretraining/{row.variant.name}/seed_1"]
        records = [found[name] for name in cell.needs]
        predictions = flag(cell, "max_predictions_per_seq")
        assert {flag(r, "max_predictions_per_seq") for r in records} == {predictions}
        rates = {flag(r, "masked_lm_prob") for r in records}
        asked[row.label] = (*rates, predictions)
    assert asked == {
        "5 %": ("0.05", "7"),
        "10 %": ("0.1", "14"),
        "15 %": (None, "20"),  # what records have if nothing is said
        "20 %": ("0.2", "27"),
        "30 %": ("0.3", "40"),
        "40 %": ("0.4", "54"),
    }


def test_the_baseline_begins_with_random_weights_and_else_alike(data):
    found = by_name(planned(table=["5"]))
    start, bert = (
        found[f"fine_tuning/sst-2/{name}/seed_1-trial_0"]
        for name in ("not_pretrained", "bert")
    )
    differ = {word.partition("=")[0] for word in set(start.words) ^ set(bert.words)}
    assert differ == {"--init_checkpoint", "--output_dir", "--bert_config_file"}
    assert flag(start, "init_checkpoint") is None and not start.needs


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
    sizes = [configs[row.variant.name] for row in TABLES["6"].rows[:-1]]
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
        ({"table": ["9"]}, "--table=9: must be any of 5, 6, 7, 8, figure5, directions"),
        ({"table": ["5", "5"]}, "--table: 5 is repeated"),
        ({"tasks": ["SST-2"]}, "--tasks=SST-2: must be NAME:FOLDER"),
        ({"tasks": ["sst3:SST-2"]}, "with a NAME of cola, sst-2, .*custom"),
        ({"tasks": ["AX:SST-2"]}, "with a NAME of cola, sst-2, .*custom"),
        ({"tasks": ["NER:SST-2"]}, "SST-2 must contain one train.txt, not 0"),
        ({"tasks": ["UD:names"]}, r"names must contain one \*train\*.conllu, not 0"),
        ({"tasks": ["custom:names"]}, "names must contain one train.tsv, not 0"),
        ({"tasks": ["SST-2:nowhere"]}, "nowhere is not a folder"),
        ({"tasks": ["RTE:names"]}, "names must contain one train.tsv, not 0"),
        ({"tasks": ["SQuAD:names"]}, r"must contain one train\*.json, not 0"),
        (
            {"table": ["7"], "tasks": ["SST-2:SST-2"]},
            "--table=7 needs in --tasks: NER; not SST-2",
        ),
        ({"table": ["6"], "held_out_file": []}, "need --held_out_file"),
        ({"max_seq_length": 600, "bert_config_file": "c.json"}, "has only 512 pos"),
        ({"classifier_flags": "--seed=3"}, "--classifier_flags: --seed is set by"),
        ({"pretraining_flags": "--flagfile=x"}, "--flagfile is set by the plan"),
        ({"output_dir": "out[1]"}, "--output_dir=out.1.: must not be empty or contain"),
        ({"bert_config_file": "left.json"}, "left.json: sets attention_direction or"),
        ({"bert_config_file": "words.json"}, "words.json: the tables pre-train"),
        (
            {"table": ["6"], "bert_config_file": "odd.json"},
            "variant with num_hidden_layers=2, num_attention_heads=3, .*hidden_size is 11",
        ),
        ({"ner_flags": "word_prefix=en:"}, "'word_prefix=en:' is not a flag"),
        ({"squad_flags": "'--a"}, "--squad_flags='--a: No closing quotation"),
        ({"seeds": [1000]}, "--seeds=1000: must be at least 0 and below 1,000"),
        ({"bert_config_file": "c.json", "vocab_file": None}, "--vocab_size=8000:"),
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
    words = {"vocab_size": 10, "architecture": "word_embeddings"}
    (data / "words.json").write_text(json.dumps(words))
    odd = {"num_hidden_layers": 4, "hidden_size": 11, "num_attention_heads": 11}
    (data / "odd.json").write_text(json.dumps(config | odd))
    with pytest.raises(UserError, match=message):
        planned(**changes)


def test_without_flags_everything_is_made_from_installed_packages(data):
    found = ablations.make_plan(ablations.Options(table=["5"]))
    assert [cell.script for cell in found.cells[:2]] == [
        "recipes/collect_documentation.py",
        "build_vocab.py",
    ]
    task = by_name(found)["fine_tuning/package/bert/seed_1-trial_0"]
    made = flag(found.cells[0], "package_dir")
    assert flag(task, "data_dir") == made and made.startswith("{root}/")
