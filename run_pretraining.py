"""Pre-trains a model on the records of create_pretraining_data.py, and evaluates it.

    python run_pretraining.py --do_train --do_eval \\
        --input_file='records/train-*.tfrecord' \\
        --eval_input_file=records/held_out.tfrecord --eval_every_steps=1000 \\
        --bert_config_file=bert_config.json --output_dir=pretraining_output \\
        --num_train_steps=10000 --num_warmup_steps=1000 --learning_rate=1e-4

By default, it learns masked words and sentence pairs, as BERT does; --objective lists what
else it can learn. If a run is killed or interrupted, the same command continues it and
ends with the same weights. The released models were trained for a million updates of 256
records (arXiv:1810.04805, A.2).
"""

import command_line
from training.pretraining.options import PretrainingOptions as Options

# --help and mistakes are answered before TensorFlow loads.
if __name__ == "__main__":
    command_line.parse(Options)

from training.pretraining import pretrain
from training.run import distribution


@distribution.report_lost_hosts()
def main(flags: Options) -> None:
    """Does what the flags ask for; see `pretraining.pretrain`."""
    pretrain.pretrain(flags)


if __name__ == "__main__":
    command_line.run(main, Options)
