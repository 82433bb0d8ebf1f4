"""Pre-trains on one device, then on two, then on one, each time after a kill.

elastic.py FLAGS LANES, FLAGS in JSON; where there are two devices. LANES: how many blocks
of records are read together.
"""

import json
import sys

import run_pretraining
from tests import jobs
from text.records import blocks

given = json.loads(sys.argv[1])
blocks._LANES = int(sys.argv[2])
for devices, end in (("one", 6), ("mirrored", 17)):
    with jobs.dying(end):
        jobs.run(
            run_pretraining,
            given | {"distribution": devices, "save_checkpoints_steps": end},
        )
jobs.run(run_pretraining, given)
