#!/usr/bin/env bash
# Sets everything up and runs all tests, files side by side on up to four cores. Arguments go
# to pytest: `./test.sh -m 'not slow'` takes a minute or two.
# Files run in order of their names: by default, those with few but long tests would run last.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
install requirements-dev.txt
cd "$root"
exec "$python" -m pytest --numprocesses=logical --maxprocesses=4 --dist=loadfile \
    --no-loadscope-reorder "$@"
