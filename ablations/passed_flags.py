"""Checks the flags that are passed on to the scripts."""

import shlex

from errors import UserError

# What the plan sets itself, or what has a flag of its own.
_PLANNED = frozenset(
    "do_train do_eval do_predict do_export input_file eval_input_file output_file "
    "output_dir bert_config_file init_checkpoint vocab_file data_dir task_name "
    "train_file predict_file seed num_trials num_train_steps max_predictions_per_seq "
    "objective masking instances mask_share keep_share random_share "
    "keep_checkpoints_at keep_checkpoint_max features lstm_layers lstm_size pooling "
    "input_format do_lower_case strip_accents split_cjk label_kind "
    # What would end a script before it works, or hide flags from this check.
    "only_check_args flagfile undefok help helpshort helpfull helpxml".split()
)

# What records and pre-training must agree on has a flag of its own.
_OF_RECORDS = ("records_flags", "pretraining_flags")


def split_flags(flag: str, value: str) -> list[str]:
    """The flags in a string.

    Raises:
        UserError: it is not a list of flags, or one of them is set by the plan.
    """
    try:
        found = shlex.split(value)
    except ValueError as error:
        raise UserError(f"--{flag}={value}: {error}") from error
    for word in found:
        name = word.lstrip("-").partition("=")[0]
        if not word.startswith("--") or not name:
            raise UserError(
                f"--{flag}: {word!r} is not a flag; write --name=value, with spaces between"
            )
        planned = _PLANNED | ({"max_seq_length"} if flag in _OF_RECORDS else set())
        if name in planned or name.removeprefix("no") in planned:
            raise UserError(f"--{flag}: --{name} is set by the plan; remove it")
    return found
