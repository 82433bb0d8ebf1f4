"""Every fine-tuning script on checkpoints of a family, with layer-wise rates."""

import pytest

import run_classifier
from errors import UserError
from tests import jobs, samples, tiny
from tests.relatives import (
    CONFIGS,
    TASKS,
    classifier_files,
    classifier_flags,
    write_start,
)


@pytest.fixture(params=CONFIGS)
def config(request):
    return CONFIGS[request.param]


# Every architecture and task; test_gpt_fine_tuning.py and test_t5.py have others.
PAIRS = [
    (name, head)
    for name, heads in samples.collect("FINE_TUNED").items()
    for head in heads
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("architecture", "head"), PAIRS)
def test_every_task_trains(tmp_path, untraced, architecture, head):
    script, write_files, flags, score = TASKS[head]
    write_files(tmp_path)
    start, _ = write_start(tmp_path, CONFIGS[architecture])
    given = flags(
        tmp_path,
        train_batch_size=[16],
        layerwise_lr_decay=0.8,
        lr_schedule="times_warmup",
        **start,
    )
    jobs.run(script, given | {"do_train": True, "do_eval": True})
    assert 0 <= jobs.results(tmp_path)[score]
    with pytest.raises(UserError, match="layerwise_lr_decay was 0.8 and is now 0.9"):
        jobs.run(script, given | {"do_train": True, "layerwise_lr_decay": 0.9})


def test_a_config_of_another_architecture_is_named(tmp_path, config):
    classifier_files(tmp_path)
    start, _ = write_start(tmp_path, config)
    other = tiny.config()
    (tmp_path / "other.json").write_text(other.to_json_string())
    with pytest.raises(UserError, match=f"'{other.architecture}', but the weights are"):
        given = {"do_train": True, "bert_config_file": f"{tmp_path}/other.json"}
        jobs.run(run_classifier, classifier_flags(tmp_path, **start) | given)


@pytest.mark.parametrize("value", [0.0, 1.5])
def test_layerwise_rates_outside_their_range_are_refused(tmp_path, value):
    given = classifier_flags(tmp_path, do_train=True, layerwise_lr_decay=value)
    with pytest.raises(UserError, match="must be above 0 and at most 1"):
        run_classifier.Options(**given)
