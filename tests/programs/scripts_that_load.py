"""Imports every script that runs something, but those whose packages are not there."""

import contextlib
import importlib

import tests

for path in sorted(tests.ROOT.glob("run_*.py")):
    with contextlib.suppress(SystemExit):
        importlib.import_module(path.stem)
