#!/usr/bin/env bash
# Sets everything up and runs all tests. Arguments go to pytest:
# `./test.sh -m 'not slow'` takes a minute.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
install requirements-dev.txt
cd "$root"
exec "$python" -m pytest "$@"
