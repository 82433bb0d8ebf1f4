#!/usr/bin/env bash
# Sets everything up and runs the whole pipeline on text that every machine has: corpus,
# vocabulary, records, pre-training, evaluation, fine-tuning, export. About ten minutes on two
# cores; `./demo.sh --short` takes two to three, and the model learns little.
source "$(dirname "${BASH_SOURCE[0]}")/requirements/setup.sh"
install requirements.txt
# -P: a folder of yours may have modules with the names of ours.
PYTHONPATH="$root" exec "$python" -P -m recipes.demo "$@"
