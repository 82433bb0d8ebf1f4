"""Several processes of this machine as the hosts of a cluster."""

import json
import os
import socket
import subprocess


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for opened in sockets:
        opened.bind(("localhost", 0))
    ports = [opened.getsockname()[1] for opened in sockets]
    for opened in sockets:
        opened.close()
    return ports


def run(command: list[str], cluster: dict[str, list[str]], env=None):
    """Runs one process for each host of a cluster, to their end.

    Returns:
        the processes, and stdout and stderr of each.
    """
    processes = [
        subprocess.Popen(
            command,
            env=(env or os.environ)
            | {
                "TF_CONFIG": json.dumps(
                    {"cluster": cluster, "task": {"type": kind, "index": index}}
                )
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for kind, hosts in cluster.items()
        for index in range(len(hosts))
    ]
    return processes, [process.communicate(timeout=300) for process in processes]
