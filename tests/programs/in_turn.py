"""Runs scripts one after the other in this process: starting one takes seconds.

in_turn.py FILE

FILE: JSON, a list of command lines, each the path of a script and its flags.
"""

import importlib
import json
import pathlib
import sys

from absl import flags

import options


def main(file):
    for script, *line in json.loads(pathlib.Path(file).read_text()):
        module = importlib.import_module(pathlib.Path(script).stem)
        given = flags.FlagValues()
        options.define(module.Options, given)
        given([script, *line])
        module.main(options.from_flags(module.Options, given))


if __name__ == "__main__":
    main(sys.argv[1])
