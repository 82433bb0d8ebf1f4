"""What a distillation refuses, each in one line that names the flag or file."""

import shutil

import pytest

from training.storage.folder import Folder
from errors import UserError
from run_squad import SPAN_HEADS
from tests import distillation, forked, jobs
from tests.distillation import TRAINED


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """Maps a kind to its files and a teacher."""
    return distillation.taught_by(tmp_path_factory.mktemp)


@pytest.fixture(autouse=True)
def _quick(untraced):
    pass


def refused(files, message, **changes):
    with pytest.raises(UserError, match=message):
        files.run("refused", **changes)
    assert not list(files.folder.glob("refused/model.ckpt*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distill_from": None, "distill_temperature": 2.0}, "no effect without --dis"),
        ({"distill_from": None, "distill_layers": ["last"]}, "no effect without --dis"),
        ({"distill_from": None, "hard_weight": 1.0}, "--hard_weight has no effect"),
        (
            {"distill_from": None, "distill_live": True},
            "--distill_live has no effect without --distill_from",
        ),
        (
            {"distill_from": None, "unlabeled_file": ["x"]},
            "--unlabeled_file has no effect without --distill_from",
        ),
        ({"distill_temperature": 0.0}, "--distill_temperature=0.0: must be above 0"),
        ({"distill_weight": -1.0}, "--distill_weight=-1.0: must be at least 0"),
        ({"distill_cls_weight": float("nan")}, "--distill_cls_weight=nan: must be a"),
        ({"distill_weight": 0.0}, "all weights of the losses are 0"),
        ({"distill_layers": ["1:x"]}, "--distill_layers=1:x: must be one of"),
        ({"distill_layers": ["last", "1:2"]}, "--distill_layers=last,1:2: must be"),
        ({"hard_weight": 0.1, "unlabeled_file": ["x"]}, "--hard_weight=0.1: the rows"),
        ({"train_file": ""}, "--train_file= is empty; name the training set"),
    ],
)
def test_flags_that_do_not_go_together(taught, changes, message):
    refused(taught("single"), message, **changes)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distill_from": "nowhere"}, "nowhere: "),
        ({"distill_layers": ["2:1"], "distill_hidden_weight": 1.0}, "the student has"),
        ({"distill_cosine_weight": 1.0}, "hidden_size is 8"),
        (
            {"distill_layers": ["last"]},
            "--distill_layers needs --distill_hidden_weight",
        ),
        ({"distill_layers": [], "distill_hidden_weight": 1.0}, "is empty; list at"),
        (
            {"distill_weight": 0.0, "hard_weight": 1.0, "distill_loss": "kl"},
            "no effect",
        ),
        ({"distill_loss": "mse", "distill_temperature": 2.0}, "no effect on mse"),
        ({"labels": ["no", "yes", "perhaps"]}, "trained for the labels no, perhaps,"),
        ({"max_seq_length": 40}, "max_position_embeddings=32"),
    ],
)
def test_a_teacher_that_does_not_fit(taught, changes, message):
    files = taught("single")
    files.configure(max_position_embeddings=64)
    refused(files, message, **changes)


@pytest.mark.slow
def test_losses_that_the_task_or_the_networks_do_not_have(taught):
    files = taught("number")
    refused(files, "compared by mse, not by kl", distill_loss="kl")
    files = taught("single")
    files.configure(num_attention_heads=4)
    refused(files, "4 attention heads, the teacher 2", distill_attention_weight=1.0)
    files.configure(num_hidden_layers=2)
    refused(files, "not a multiple of the student's 2", distill_hidden_weight=1.0)
    last = {"distill_layers": ["last"], "distill_hidden_weight": 1.0}
    refused(files, "more than the teacher's 1", **last)
    files.configure()
    refused(files, "gives --distill_hidden_weight no pair of layers", **last)
    own = files.teacher + "/."
    refused(files, "is also --output_dir", output_dir=files.teacher, distill_from=own)


@pytest.mark.slow
def test_models_that_are_no_teachers(taught, tmp_path):
    files, choice = taught("single"), taught("choice")
    other = f"--distill_from={choice.teacher}: contains a model of the task Multiple"
    refused(files, other, distill_from=choice.teacher)
    number = {"distill_from": taught("number").teacher}
    refused(files, "trained for numbers per text, not for one label; pass", **number)
    refused(
        files,
        "several labels per text, not for one label; pass",
        distill_from=taught("several").teacher,
    )
    bare = shutil.copytree(files.teacher, tmp_path / "bare")
    (bare / "bert_config.json").unlink()
    refused(
        files, "there is no bert_config.json or config.json", distill_from=str(bare)
    )
    export = tmp_path / "export"
    export.mkdir()
    (export / "export.json").write_text("{}")
    refused(
        files,
        "export.json: does not describe a known kind of export",
        distill_from=str(export),
    )


def test_an_encoder_without_a_head_is_no_teacher(taught, tmp_path):
    from training.storage import checkpoint

    files = taught("single")
    weights = jobs.weights(files.folder)
    encoder = {name: x for name, x in weights.items() if name.startswith("bert/")}
    checkpoint.save(Folder.open(str(tmp_path)), 1, encoder, keep=1)
    for name in ("bert_config.json", "vocab.txt"):
        shutil.copy(f"{files.teacher}/{name}", tmp_path)
    refused(
        files,
        "was not trained for this task: .*output_weights",
        distill_from=str(tmp_path),
    )


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["single", "choice", "spans", "tags"])
def test_another_vocabulary_is_for_rows_with_one_answer(taught, tmp_path, kind):
    """Where the answers are about tokens, both must have the same."""
    files = taught(kind)
    tokens = (files.folder / "vocab.txt").read_text().splitlines()
    own = tmp_path / "vocab.txt"
    own.write_text("".join(f"{t}\n" for t in [*tokens[:5], *reversed(tokens[5:])]))
    given = {"vocab_file": str(own), "num_train_epochs": [0.4]}
    live = (
        "reads text otherwise than the student, and asking about every batch needs the "
        "same; pass --vocab_file=.*, or leave out --distill_live"
    )
    refused(files, live, **given, distill_live=True)
    if kind in ("spans", "tags"):
        refused(files, "token by token needs the same; pass --vocab_file=", **given)
    else:
        assert files.run("own_vocabulary", **given)


def test_flags_of_the_tokenizer_that_differ_are_named(taught):
    given = {"distill_live": True, "do_lower_case": False}
    flags = "--do_lower_case=true --strip_accents=true, or leave out --distill_live"
    refused(taught("single"), f"the same; pass {flags}", **given)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("head", list(SPAN_HEADS)[:1])
def test_other_heads_of_spans_have_no_teacher(taught, head):
    files = taught("spans")
    refused(
        files,
        "another head, --span_head=independent; only the default",
        span_head=head,
    )
    distillation.teach(
        files,
        output_dir=str(files.folder / "other"),
        span_head=head,
        num_train_epochs=[0.2],
    )
    given = {"distill_from": str(files.folder / "other"), "span_head": head}
    refused(files, "train the teacher and the student with", **given)


@pytest.mark.slow
def test_a_person_sees_one_line(taught):
    files = taught("single")
    given = files.given("refused", distill_from="nowhere", **TRAINED)
    done = forked.finished(jobs.command("run_classifier.py", given))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("run_classifier.py: error: --distill_from=nowhere: ")
