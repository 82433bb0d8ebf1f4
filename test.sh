#!/usr/bin/env bash
# Sets everything up and runs all tests, in parallel on up to four cores. Arguments go to
# pytest: `./test.sh -m 'not slow'` takes a minute or two. One process more than there are
# cores, because many tests wait for others that they start.
# Files run in the order of their names. By default, those with few but long tests would come
# last.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
install requirements/dev.txt
cd "$root"
processes=$("$python" -c 'import os; print(min(os.cpu_count(), 4) + 1)')
exec "$python" -m pytest --numprocesses="$processes" --dist=loadfile \
    --no-loadscope-reorder "$@"
