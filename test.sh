#!/usr/bin/env bash
# Sets everything up and runs all tests, in parallel on up to four cores. Arguments go to
# pytest: `./test.sh -m 'not slow'` takes a minute or two.
# Files run in the order of their names. By default, those with few but long tests would come
# last.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
install requirements/dev.txt
cd "$root"
exec "$python" -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile \
    --no-loadscope-reorder "$@"
