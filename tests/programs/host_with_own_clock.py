"""Runs a script, with its flags, on a host whose calls to TensorFlow last this long.

host_with_own_clock.py SECONDS SCRIPT FLAGS
"""

import runpy
import sys

from training.run import loop

loop._SECONDS_PER_CALL = float(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
