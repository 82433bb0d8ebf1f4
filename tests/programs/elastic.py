"""Pre-trains on one device, then on two, then on one, each time after a kill.

elastic.py FLAGS, in JSON; where there are two devices.
"""

import json
import sys

import run_pretraining
from tests import jobs

given = json.loads(sys.argv[1])
for devices, end in (("one", 6), ("mirrored", 17)):
    with jobs.dying(end):
        jobs.run(
            run_pretraining,
            given | {"distribution": devices, "save_checkpoints_steps": end},
        )
jobs.run(run_pretraining, given)
