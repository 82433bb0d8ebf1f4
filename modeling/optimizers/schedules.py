"""How the learning rate changes during a run.

A schedule gives the float32 rate of the update that follows `step` updates:

    schedule(step, peak, num_train_steps, num_warmup_steps, ...)

`step` is an int scalar, 0 for the first update. To add one, add a function, and a row to
SCHEDULES in table.py.
"""

import math

from keras import ops


def bert(step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0):
    """Falls in a line from `peak` at step 0 to 0 at num_train_steps.

    During the first num_warmup_steps it rises from 0 instead, then jumps down to that line.
    A power is one of the share of `peak` that the line gives.

    Source: google-research/bert@eedf571 optimization.py.
    """
    step = ops.cast(step, "float32")
    rate = peak * _remaining_share(step, num_train_steps, lr_decay_power)
    return _after_warmup(step, peak, num_warmup_steps, rate)


def from_peak(step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0):
    """Like `bert`, but falls from `peak` at the end of the warm-up.

    Source: facebookresearch/fairseq@3d262bb
    optim/lr_scheduler/polynomial_decay_schedule.py.
    """
    step = ops.cast(step, "float32")
    left = num_train_steps - ops.minimum(step, num_train_steps)
    falling = max(num_train_steps - num_warmup_steps, 1)
    rate = peak * left / falling
    if lr_decay_power != 1.0:
        rate = peak * (left / falling) ** lr_decay_power
    return _after_warmup(step, peak, num_warmup_steps, rate)


def times_warmup(step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0):
    """Like `bert`, but the warm-up multiplies the line, so nothing jumps.

    The rate never reaches `peak`.

    Source: google-research/electra@8a46635 model/optimization.py;
    openai/finetune-transformer-lm@a69b5c4 opt.py, warmup_linear.
    """
    step = ops.cast(step, "float32")
    rate = peak * _remaining_share(step, num_train_steps, lr_decay_power)
    if not num_warmup_steps:
        return rate
    return rate * ops.minimum(1.0, step / num_warmup_steps)


def cosine(step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0):
    """Rises to `peak`, then jumps down to half a wave that began with the run.

    Source: openai/finetune-transformer-lm@a69b5c4 opt.py, warmup_cosine.
    """
    step = ops.cast(step, "float32")
    share = ops.minimum(step, num_train_steps) / num_train_steps
    return peak * _rising(step, num_warmup_steps, _wave(share, lr_decay_power))


def constant(step, peak, num_train_steps, num_warmup_steps):
    """Rises to `peak` and stays there.

    Source: openai/finetune-transformer-lm@a69b5c4 opt.py, warmup_constant.
    """
    del num_train_steps
    step = ops.cast(step, "float32")
    return peak * _rising(step, num_warmup_steps, ops.ones(()))


def inverse_root(step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0):
    """`peak` for the first num_warmup_steps updates, then falls with the root of `step`.

    With 0.01 and 10,000 it is 1 / sqrt(max(step, 10000)), with which T5 was pre-trained.
    """
    del num_train_steps
    first = float(max(num_warmup_steps, 1))
    step = ops.maximum(ops.cast(step, "float32"), first)
    return peak * ops.sqrt(first / step) ** lr_decay_power


def to_ratio(
    step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0, min_lr_ratio=0.0
):
    """Like `from_peak`, but falls to `min_lr_ratio` of the peak.

    Source: zihangdai/xlnet@bbaa3a6 model_utils.py, get_train_op.
    """
    done = _since_warmup(step, num_train_steps, num_warmup_steps)
    left = 1.0 - done if lr_decay_power == 1.0 else (1.0 - done) ** lr_decay_power
    rate = peak * (min_lr_ratio + (1.0 - min_lr_ratio) * left)
    return _after_warmup(step, peak, num_warmup_steps, rate)


def cosine_to_ratio(
    step, peak, num_train_steps, num_warmup_steps, lr_decay_power=1.0, min_lr_ratio=0.0
):
    """Like `to_ratio`, but in half a wave. Source: as there."""
    done = _since_warmup(step, num_train_steps, num_warmup_steps)
    left = _wave(done, lr_decay_power)
    rate = peak * (min_lr_ratio + (1.0 - min_lr_ratio) * left)
    return _after_warmup(step, peak, num_warmup_steps, rate)


def wsd(
    step,
    peak,
    num_train_steps,
    num_warmup_steps,
    lr_decay_power=1.0,
    min_lr_ratio=0.0,
    num_decay_steps=0,
):
    """Rises, stays at `peak`, and falls in a line during the last num_decay_steps updates.

    Until it falls, it does not depend on num_train_steps: a run can be made longer, and
    several falls can begin at checkpoints of the stable part. Without num_decay_steps, it
    never falls.

    Source: arXiv:2404.06395, section 4 (warm-up, stable, decay).
    """
    left = 1.0 - _share_of_decay(step, num_train_steps, num_decay_steps)
    left = left if lr_decay_power == 1.0 else left**lr_decay_power
    rate = peak * (min_lr_ratio + (1.0 - min_lr_ratio) * left)
    return _after_warmup(step, peak, num_warmup_steps, rate)


def wsd_sqrt(
    step, peak, num_train_steps, num_warmup_steps, min_lr_ratio=0.0, num_decay_steps=0
):
    """Like `wsd`, but falls as 1 - sqrt(x), with x from 0 to 1.

    Source: arXiv:2405.18392; AnswerDotAI/ModernBERT src/scheduler.py,
        OneMinusSqrtScheduler.
    """
    left = 1.0 - ops.sqrt(_share_of_decay(step, num_train_steps, num_decay_steps))
    rate = peak * (min_lr_ratio + (1.0 - min_lr_ratio) * left)
    return _after_warmup(step, peak, num_warmup_steps, rate)


def _share_of_decay(step, num_train_steps, num_decay_steps):
    """The share of the last num_decay_steps updates that are done."""
    before = num_train_steps - num_decay_steps
    done = ops.maximum(ops.cast(step, "float32") - before, 0.0)
    return ops.minimum(done / max(num_decay_steps, 1), 1.0)


def _remaining_share(step, num_train_steps, power):
    """The share of the updates that are still to do, to this power."""
    left = 1.0 - ops.minimum(step, num_train_steps) / num_train_steps
    return left if power == 1.0 else left**power


def _since_warmup(step, num_train_steps, num_warmup_steps):
    """The share of the updates after the warm-up that are done."""
    step = ops.cast(step, "float32")
    falling = max(num_train_steps - num_warmup_steps, 1)
    done = (ops.minimum(step, num_train_steps) - num_warmup_steps) / falling
    return ops.maximum(done, 0.0)


def _wave(share, power):
    """Half a cosine wave from 1 to 0, to this power."""
    return (0.5 * (1.0 + ops.cos(math.pi * share))) ** power


def _after_warmup(step, peak, num_warmup_steps, rate):
    """Rises to `peak` in a line, then is `rate`."""
    if not num_warmup_steps:
        return rate
    step = ops.cast(step, "float32")
    return ops.where(step < num_warmup_steps, step / num_warmup_steps * peak, rate)


def _rising(step, num_warmup_steps, after):
    """The share of the warm-up's updates that are done; at its end and later, `after`.

    In OpenAI's code, the update at the end still has the full rate.
    """
    if not num_warmup_steps:
        return after
    return ops.where(step <= num_warmup_steps, step / num_warmup_steps, after)
