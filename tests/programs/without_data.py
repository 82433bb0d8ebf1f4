"""Runs a script, with its flags, on two hosts, of which one is without its data.

The first argument is a folder, the others are the script and its flags. It does so twice:
first host 0 lacks the data, then host 1. What host H says where host N lacks them is in
the folder's files N-H.out and N-H.err, and its exit status in N-H.status.

The hosts are forks of this process, so that TensorFlow is loaded once for all of them.
"""

import json
import os
import pathlib
import runpy
import sys

from training import tf  # noqa: F401, the hosts need it
from tests.programs import hosts, parity  # noqa: F401


def start(host, lacking, workers, folder):
    if pid := os.fork():
        return pid
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(
            os.open(folder / f"{lacking}-{host}.{name}", os.O_CREAT | os.O_WRONLY),
            number,
        )
    task = {"type": "worker", "index": host}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    if host == lacking:
        sys.argv.append("--data_dir=nowhere")
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(0)


def main():
    _, folder, *sys.argv = sys.argv
    folder = pathlib.Path(folder)
    for lacking in range(2):
        workers = [f"localhost:{port}" for port in hosts.free_ports(2)]
        pids = [start(host, lacking, workers, folder) for host in range(2)]
        for host, pid in enumerate(pids):
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            (folder / f"{lacking}-{host}.status").write_text(str(status))


if __name__ == "__main__":
    main()
