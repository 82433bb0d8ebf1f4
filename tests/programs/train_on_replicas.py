"""Trains the same three updates on one device, and on two in several ways at once.

    train_on_replicas.py RECORDS KIND [every]

Run in a process of its own: a process may hold one MirroredStrategy, and logical devices
are made before TensorFlow starts. Prints, as JSON, the largest difference from the plain
updates, over all variables, slots and reported values. Where that is too large, or with
"every", also that of each way alone. XLA is among all ways with "every".
"""

import dataclasses
import json
import sys

import numpy as np

from training.backend import tf
from training.run import distribution, loop
from modeling import layers
from modeling.architectures.bert import BertConfig
from modeling.distillation.distillation import Distillation
from modeling.distillation.distilled_words import DistilledWords
from modeling.objectives import masked_lm, sentence_pairs
from tests import samples
from tests.log import Log
from text.instances.table import RowOptions
from text.records import reading
from text.records.record_set import RecordSet

# Of what has one sum in another order.
LARGEST = 1e-5


def distilled():
    """With a teacher on the devices of the student."""
    teacher = BertConfig(**samples.DIVIDED_SIZES)
    return DistilledWords(
        sentence_pairs.MaskedLMNextSentence(),
        Distillation(hard_weight=1.0, cosine_weight=1.0),
        lambda: masked_lm.MaskedLM().network(teacher, seed=7),
        teacher,
        "masked",
    )


BERT = BertConfig(**samples.DIVIDED_SIZES)
KINDS = {
    "pairs": samples.Divided(
        sentence_pairs.MaskedLMNextSentence, BERT, "next_sentence_logits"
    ),
    "distilled words": samples.Divided(distilled, BERT, "next_sentence_logits"),
    **samples.collect("DIVIDED"),
}


def train(strategy, kind, data, accumulation_steps=1, xla=False, recompute=False):
    """Values by name: final variables, every update's report, an evaluation."""
    objective, config = kind.make(), kind.config
    settings = loop.LoopSettings(
        num_train_steps=3,
        num_warmup_steps=1,
        learning_rate=1e-3,
        batch_size=32,
        accumulation_steps=accumulation_steps,
        recompute=recompute,
        xla=xla,
        optimizer=kind.optimizer,
        save_every_steps=0,
        log_every_steps=1,
    )
    trainer = loop.Trainer(
        strategy,
        lambda: objective.network(config, seed=1),
        objective,
        settings,
        kind.steps,
    )
    log = Log()
    trainer.train(
        lambda first, part: data.training(32, seed=1, first_batch=first, part=part),
        "nowhere",
        log,
    )
    values = {name: v.numpy() for name, v in trainer.variables.items()}
    for step, row in enumerate(log.rows):
        values |= {f"{name} of update {step}": value for name, value in row.items()}
    evaluation = trainer.evaluate(  # 7 batches do not fill up the last
        lambda part: data.evaluation(120, max_batches=7, part=part), 7
    )
    return values | {f"evaluated {name}": v for name, v in evaluation.items()}


def differences_by_dropout(strategy, kind, data):
    """How far two replicas, and two updates, are apart on the same records."""
    objective = kind.make()
    config = dataclasses.replace(kind.config, hidden_dropout_prob=0.1)
    settings = loop.LoopSettings(5, 2, learning_rate=1e-3, batch_size=32, seed=9)
    trainer = loop.Trainer(
        strategy,
        lambda: objective.network(config, seed=1),
        objective,
        settings,
        kind.steps,
    )
    batch = trainer.prepare(next(iter(data.training(4, seed=1))))

    @tf.function
    def outputs(step):
        def on_replica():
            seeds = trainer._seeds(tf.distribute.get_replica_context(), step)
            outputs = trainer.model(batch, dropouts=layers.Dropouts(seeds[0]))
            return outputs[kind.output]

        return strategy.experimental_local_results(strategy.run(on_replica))

    first, second = (outputs(tf.constant(step, tf.int64)) for step in (0, 1))
    again = outputs(tf.constant(0, tf.int64))
    pairs = {
        "replicas": (first[0], first[1]),
        "updates": (first[0], second[0]),
        "repetitions": (first[0], again[0]),
    }
    return {what: float(np.max(np.abs(a - b))) for what, (a, b) in pairs.items()}


def _difference(name, values, expected):
    """Relative where numbers are above 1 (losses, gradient norms)."""
    scale = np.maximum(1.0, np.abs(expected))
    if "disc_auc" in name:  # changes in steps, where a probability meets a threshold
        scale *= 100.0
    return float(np.max(np.abs(values - expected) / scale))


def main(path, name, every=""):
    kind = KINDS[name]
    cpu = tf.config.list_physical_devices("CPU")[0]
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    schema = (
        RowOptions(max_seq_length=64, max_predictions_per_seq=10)
        .make_instances()
        .schema()
    )
    data = reading.Records(RecordSet([path]).files, schema)
    one, mirrored = distribution.make("one"), distribution.make("mirrored")
    plain = train(one, kind, data)

    def difference(strategy, **ways):
        values = train(strategy, kind, data, **ways)
        return max(_difference(name, values[name], plain[name]) for name in plain)

    # Compiling for each replica would take as long as all the rest.
    xla = bool(every)
    together = {"accumulation_steps": 2, "recompute": True, "xla": xla}
    differences = {"all ways": difference(mirrored, **together)}
    if every or not differences["all ways"] < LARGEST:
        differences |= {
            "accumulation": difference(one, accumulation_steps=4),
            "replicas": difference(mirrored),
            "recomputation": difference(one, recompute=True),
            "xla": difference(one, xla=True),
        }
    result = {
        "smallest gradient norm": min(
            value for name, value in plain.items() if name.startswith("gradient_norm")
        ),
        "number of replicas": mirrored.num_replicas_in_sync,
        "differences": differences,
        "by dropout": differences_by_dropout(mirrored, kind, data),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
