"""Runs a script, with its flags, but on one host of a cluster without its data.

The first argument is that host's index, the others are the script and its flags.
"""

import json
import os
import runpy
import sys

host, *sys.argv = sys.argv[1:]
if json.loads(os.environ["TF_CONFIG"])["task"]["index"] == int(host):
    sys.argv.append("--data_dir=nowhere")
runpy.run_path(sys.argv[0], run_name="__main__")
