"""A RoBERTa's adapters in the files of Hugging Face's peft, without it."""

import safetensors.numpy

from modeling.objectives import tasks
from tests import jobs, peft_adapters
from tests.training.interchange.test_peft import WEIGHTS, config, read, stored


def test_a_pooler_that_the_base_lacks_is_trained_and_saved_whole(tmp_path):
    peft_adapters.write_base(tmp_path, "roberta")
    peft_adapters.make(tmp_path, "roberta", tasks.Choice())
    peft_adapters.convert(tmp_path / "output", tmp_path / "ours")
    saved = ["classifier", "roberta.pooler.dense"]
    assert config(tmp_path / "ours")["modules_to_save"] == saved


def test_the_base_of_an_encoder_alone_tells_its_architecture(tmp_path):
    """The names of its modules are those of a BERT."""
    peft_adapters.write_base(tmp_path, "roberta")
    peft_adapters.make(tmp_path, "roberta")
    peft_adapters.convert(tmp_path / "output", tmp_path / "ours")
    alone = {
        name.replace("model.roberta.", "model."): value
        for name, value in stored(tmp_path / "ours").items()
        if "lora" in name
    }
    safetensors.numpy.save_file(alone, tmp_path / "ours" / WEIGHTS)
    config(tmp_path / "ours", task_type=None, modules_to_save=None)
    whole = read(tmp_path / "output")
    found = read(tmp_path / "ours")
    jobs.check_same_bits(found, {name: whole[name] for name in found})
    peft_adapters.convert(tmp_path / "ours", tmp_path / "again")
    jobs.check_same_bits(stored(tmp_path / "again"), alone)
