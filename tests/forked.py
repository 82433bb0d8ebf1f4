"""Programs in processes of their own that load nothing: forks of one that has TensorFlow.

Loading it takes longer than most programs of the tests do. The process that has it starts
with the first fork and computes nothing, because a fork of one that has computed hangs.

Forks have the same hash seed, read the log level of that process and say nothing of the
start. What depends on those takes `jobs.finished`.
"""

import atexit
import contextlib
import json
import multiprocessing
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing import connection

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["training.backend", "tests.programs.scripts_that_load", "tests.programs.parity"]
)


class Process:
    """As far as tests want it, `subprocess.Popen` for the command line of a Python file.

    Args:
        limits: of resources, by their numbers; such a process leads a group of its own.
        untraced: run functions of TensorFlow as they are written, as `jobs.untraced`.
    """

    def __init__(
        self,
        command,
        *,
        stdout,
        stderr,
        cwd=None,
        env=None,
        limits=None,
        untraced=False,
    ):
        assert command[0] == sys.executable, command
        self.args = command
        # Connections are what can be sent to another process.
        files = [connection.Connection(os.dup(f.fileno())) for f in (stdout, stderr)]
        environment = dict(os.environ if env is None else env)
        place = str(cwd or os.getcwd())
        given = (command[1:], place, environment, limits, untraced, *files)
        self._process = _FORKS.Process(target=_run, args=given)
        self._process.start()
        for file in files:
            file.close()
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    @property
    def sentinel(self) -> int:
        """What `multiprocessing.connection.wait` takes."""
        return self._process.sentinel

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _run(arguments, cwd, environment, limits, untraced, stdout, stderr):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if untraced:
        sys.modules["tensorflow"].config.run_functions_eagerly(True)
    if limits:
        os.setpgid(0, 0)
        for kind, most in limits.items():
            resource.setrlimit(kind, (most, most))
    os.dup2(stdout.fileno(), 1)
    os.dup2(stderr.fileno(), 2)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = arguments
    try:
        runpy.run_path(arguments[0], run_name="__main__")
    finally:
        atexit._run_exitfuncs()  # which forks leave out


def finished(line: list[str], **given) -> subprocess.CompletedProcess:
    """Runs a command to its end; see `Process` for what else may be given."""
    (process,) = _all_finished([(line, given)])
    return process


def run(command, *, capture_output, text, in_a_server) -> subprocess.CompletedProcess:
    """As `subprocess.run`, where serving/export.py checks an export.

    Args:
        in_a_server: the export is also loaded by what TensorFlow Serving loads with.
    """
    from tests import graph_session

    assert command[1] == "-P" and capture_output and text
    done = finished([command[0], *command[2:]])
    if in_a_server and not done.returncode:
        graph_session.check_calls(*command[3:])
    return done


def hosts_finished(cluster: dict[str, list[list[str]]]):
    """Runs commands side by side as the hosts of a cluster, to their ends."""
    free = iter(_free_ports(sum(map(len, cluster.values()))))
    addresses = {
        kind: [f"localhost:{next(free)}" for _ in lines]
        for kind, lines in cluster.items()
    }
    runs = []
    for kind, lines in cluster.items():
        for index, line in enumerate(lines):
            host = {"cluster": addresses, "task": {"type": kind, "index": index}}
            env = os.environ | {"TF_CONFIG": json.dumps(host)}
            runs.append((line, {"env": env}))
    return _all_finished(runs)


def _free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("localhost", 0))
        return [opened.getsockname()[1] for opened in sockets]


def _all_finished(runs):
    with contextlib.ExitStack() as stack:
        processes = []
        for line, given in runs:
            files = [
                stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)
            ]
            process = Process(line, stdout=files[0], stderr=files[1], **given)
            processes.append((process, files))
        done = []
        for process, files in processes:
            process.wait(900)
            for file in files:
                file.seek(0)
            said = [file.read() for file in files]
            done.append(
                subprocess.CompletedProcess(process.args, process.returncode, *said)
            )
        return done
