"""Tests, in folders as the tree has them; those of a script lie beside this file."""

import pathlib

ROOT = pathlib.Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"  # computed by released code; its README says how
