#!/usr/bin/env bash
# Sets everything up and runs the whole chain on text that every machine has: corpus,
# vocabulary, records, pre-training, evaluation, filled masks. About ten minutes
# on two cores; `./demo.sh --short` runs the same chain in two minutes, and learns little.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
install requirements.txt
exec "$python" "$root/demo.py" "$@"
