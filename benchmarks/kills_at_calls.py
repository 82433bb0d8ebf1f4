"""Kills a job at each call by which its last phase changes a folder, and starts it again.

python -m benchmarks.kills_at_calls [--jobs=fine_tuning,...] [--every=1]

The last phase begins with the last checkpoint and ends with the export. It starts from a
copy of the same folder each time, and is killed before its first call that makes, renames,
removes, truncates or syncs a file there, then before its second one, and so on. A library
written in C counts the calls, those of TensorFlow included, so this needs a C compiler.
The same command then has to end with the files of an undisturbed run.
"""

import collections
import dataclasses
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile

import command_line
import options
from benchmarks import kills

_LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int calls;
static int last, list = -1;
static char folder[PATH_MAX];

__attribute__((constructor)) static void begin(void) {
  if (!getenv("COUNTED_FOLDER")) return;
  strcpy(folder, getenv("COUNTED_FOLDER"));
  last = atoi(getenv("KILLED_AT"));
  list = open(getenv("LIST_OF_CALLS"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  unsetenv("COUNTED_FOLDER");  /* other processes that this one starts do not count */
}

static void count(const char *call, int at, const char *name) {
  char base[PATH_MAX] = "", path[2 * PATH_MAX], link[64];
  if (list < 0) return;
  snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
  if (name[0] != '/' && readlink(link, base, sizeof base - 1) < 0) return;
  snprintf(path, sizeof path, "%s%s%s", base, *base && *name ? "/" : "", name);
  if (strncmp(path, folder, strlen(folder))) return;
  dprintf(list, "%s %s\n", call, path + strlen(folder));
  if (atomic_fetch_add(&calls, 1) + 1 == last) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
}

#define COUNTED(call, parameters, arguments, at, path)                \
  int call parameters {                                               \
    int(*real) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #call); \
    count(#call, at, path);                                           \
    return real arguments;                                            \
  }
#define OPENED(call, parameters, at)                                      \
  int call parameters {                                                   \
    va_list rest;                                                         \
    va_start(rest, flags);                                                \
    int mode = flags & O_CREAT ? va_arg(rest, int) : 0;                   \
    va_end(rest);                                                         \
    int (*real)(int, const char *, int, ...) =                            \
        (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat"); \
    if (flags & (O_CREAT | O_TRUNC)) count("open", at, path);             \
    return real(at, path, flags, mode);                                   \
  }

COUNTED(rename, (const char *from, const char *to), (from, to), AT_FDCWD, to)
COUNTED(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), b, to)
COUNTED(link, (const char *from, const char *to), (from, to), AT_FDCWD, to)
COUNTED(unlink, (const char *path), (path), AT_FDCWD, path)
COUNTED(unlinkat, (int at, const char *path, int flags), (at, path, flags), at, path)
COUNTED(mkdir, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
COUNTED(rmdir, (const char *path), (path), AT_FDCWD, path)
COUNTED(fsync, (int file), (file), file, "")
COUNTED(fdatasync, (int file), (file), file, "")
COUNTED(ftruncate, (int file, off_t size), (file, size), file, "")
COUNTED(ftruncate64, (int file, off64_t size), (file, size), file, "")
OPENED(open, (const char *path, int flags, ...), AT_FDCWD)
OPENED(open64, (const char *path, int flags, ...), AT_FDCWD)
OPENED(openat, (int at, const char *path, int flags, ...), at)
OPENED(openat64, (int at, const char *path, int flags, ...), at)

FILE *fopen64(const char *path, const char *mode) {
  FILE *(*real)(const char *, const char *) =
      (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen64");
  if (mode[0] != 'r') count("fopen", AT_FDCWD, path);
  return real(path, mode);
}
FILE *fopen(const char *path, const char *mode) { return fopen64(path, mode); }
"""
_OTHERS_FILES = ("notes.txt", "export.txt", ".hidden", "best.txt")
# TensorFlow numbers and names parts of an export anew in each process.
_VARYING = re.compile(r"export/(.*/)?(saved_model\.pb|fingerprint\.pb|export\.json)")
_SIZE = 0.1


@dataclasses.dataclass(frozen=True)
class Options(options.Group):
    jobs: list[str] = options.field(
        ["fine_tuning", "pretraining"], help="Which jobs to kill."
    )
    every: int = options.field(1, help="Kill at every n-th call only.")


def commands(inputs: pathlib.Path) -> dict[str, list[str]]:
    """Job -> its command; see `kills.commands`."""
    made = kills.commands(inputs, _SIZE)
    exports = ["--do_export", "--save_checkpoints_steps=4", "--keep_checkpoint_max=1"]
    return {
        "fine_tuning": [*made["fine_tuning"], *exports],
        "pretraining": [
            *made["pretraining"],
            *exports,
            f"--vocab_file={inputs}/vocab.txt",
        ],
    }


class Killer:
    """Runs a command in folders, and kills it at its n-th call there."""

    def __init__(self, command: list[str], library: pathlib.Path):
        self._command, self._library = command, library
        self.was_killed = False  # in its last run

    def run(self, folder: pathlib.Path, at: int = 0) -> list[str]:
        """Returns the calls; the last one was not made if it is number `at`.

        Raises:
            RuntimeError: it failed; includes its output.
        """
        calls = folder / "calls"
        calls.unlink(missing_ok=True)
        env = os.environ | {
            "LD_PRELOAD": str(self._library),
            "COUNTED_FOLDER": f"{folder.resolve()}/output/",
            "KILLED_AT": str(at),
            "LIST_OF_CALLS": str(calls),
        }
        with open(folder / "log", "a+") as log:
            done = subprocess.run(
                self._command, cwd=folder, env=env, stdout=log, stderr=log
            )
            self.was_killed = done.returncode == -signal.SIGKILL
            if done.returncode and not self.was_killed:
                log.seek(0)
                raise RuntimeError(
                    f"ended with {done.returncode}: {log.read()[-2000:]}"
                )
        return calls.read_text().splitlines()


def compile_library(folder: pathlib.Path) -> pathlib.Path:
    source, library = folder / "calls.c", folder / "calls.so"
    source.write_text(_LIBRARY)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True
    )
    return library


def contents(folder: pathlib.Path) -> dict[str, str]:
    """File -> what must be equal; hidden ones, and some of exports, by name alone."""
    output = folder / "output"
    names = [str(p.relative_to(output)) for p in output.rglob("*") if p.is_file()]
    hidden = {name: "" for name in names if pathlib.Path(name).name[0] == "."}
    checksums = kills.digests(output) | hidden
    return {n: "" if _VARYING.fullmatch(n) else v for n, v in checksums.items()}


def begin(killer: Killer, straight: pathlib.Path, begun: pathlib.Path) -> None:
    """Runs a job in one folder, and in another until it writes its last checkpoint."""
    for folder in (straight, begun):
        (folder / "output").mkdir(parents=True)
        for name in _OTHERS_FILES:
            (folder / "output" / name).write_text("a user's\n")
    matches = [re.search(r"\bmodel\.ckpt-(\d+)", call) for call in killer.run(straight)]
    steps = [int(step[1]) if step else 0 for step in matches]
    killer.run(begun, at=steps.index(max(steps)) + 1)


def main(flags: Options) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        top = pathlib.Path(temporary)
        library, inputs = compile_library(top), top / "inputs"
        inputs.mkdir()
        kills.write_inputs(inputs, _SIZE)
        if "pretraining" in flags.jobs:
            kills.run(kills.commands(inputs)["generation"], inputs / "generation")
        for job in flags.jobs:
            killer = Killer(commands(inputs)[job], library)
            folders = top / job
            folders.mkdir()
            kill_at_each(job, killer, folders, flags.every)


def kill_at_each(
    job: str, killer: Killer, folders: pathlib.Path, every: int = 1
) -> None:
    """Kills a job's last phase at every n-th call, and prints how many files differ."""
    begin(killer, folders / "straight", folders / "begun")
    expected = contents(folders / "straight")
    undisturbed = shutil.copytree(folders / "begun", folders / "undisturbed")
    calls = killer.run(undisturbed)
    kinds = collections.Counter(call.split()[0] for call in calls)
    print(f"{job}: {len(calls)} calls: {dict(kinds)}", flush=True)
    wrong = [("no call", n) for n in kills.differing(expected, contents(undisturbed))]
    kills_done = 0
    for at in range(1, len(calls) + 1, every):
        folder = shutil.copytree(folders / "begun", folders / str(at))
        call = killer.run(folder, at=at)[-1]
        if killer.was_killed:
            kills_done += 1
            killer.run(folder)
        wrong += [(call, name) for name in kills.differing(expected, contents(folder))]
        shutil.rmtree(folder)
        print(
            f"{job}: {kills_done} kills, now at call {at} of {len(calls)}: "
            f"{len(wrong)} files differ {wrong[-5:] or ''}",
            flush=True,
        )


if __name__ == "__main__":
    command_line.run(main, Options)
