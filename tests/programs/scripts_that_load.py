"""Imports every script that runs something, but those whose packages are not there, and
what a training loads for its curves."""

import contextlib
import importlib

import matplotlib.backends.backend_agg  # noqa: F401

import tests

for path in sorted(tests.ROOT.glob("run_*.py")):
    with contextlib.suppress(SystemExit):
        importlib.import_module(path.stem)
