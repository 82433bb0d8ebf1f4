"""Imports every script that runs something, but those whose packages are not there, and
what runs load only for scores and curves."""

import contextlib
import importlib

import matplotlib.backends.backend_agg  # noqa: F401
import scipy.stats  # noqa: F401
import sklearn.metrics  # noqa: F401

import tests

for path in sorted(tests.ROOT.glob("run_*.py")):
    with contextlib.suppress(SystemExit):
        importlib.import_module(path.stem)
