"""Training runs: steps, evaluation, checkpoints, distribution and reports."""
