#!/usr/bin/env bash
# Sets everything up and runs the tests, in up to four processes: one more than there are
# cores, because some tests wait. Arguments go to pytest: `./test.sh -m 'not slow'` takes a
# few minutes, `./test.sh --everything` also runs what repeats for more cases, or takes long.
# Files run in the order of tests/durations.json, the longest first. A process that dies fails
# the run: in place of one, pytest-xdist would start another and then wait for ever.
source "$(dirname "${BASH_SOURCE[0]}")/requirements/setup.sh"
install requirements/dev.txt
cd "$root"
unset PYTHONDONTWRITEBYTECODE  # else hundreds of programs compile our modules anew
processes=$("$python" -c 'import os; print(min(4, os.cpu_count() + 1))')
exec "$python" -m pytest --numprocesses="$processes" --max-worker-restart=0 \
    --dist=loadfile --no-loadscope-reorder "$@"
