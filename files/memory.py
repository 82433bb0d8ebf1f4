"""How much memory this machine has, and how much of it a process fills."""

import functools
import os
import re

from errors import UserError, size

_MOST = 0.8  # of the memory; whoever reads a text needs more of it than the text


@functools.cache
def total() -> int:
    """The bytes of memory and swap; of a container with a limit, that limit."""
    number = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if match := re.search(r"SwapTotal:\s*(\d+) kB", _content("/proc/meminfo")):
        number += 1024 * int(match[1])
    limit = _content("/sys/fs/cgroup/memory.max").strip()
    return min(number, int(limit)) if limit.isdecimal() else number


def used_bytes() -> int:
    """The bytes that this process fills; 0 where the system does not say."""
    pages = _content("/proc/self/statm").split()
    return int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def refuse_if_filled(what: str) -> None:
    """Ends a reading that has nearly filled the memory, before the system ends the process.

    Args:
        what: was read, for the message.
    Raises:
        UserError: it has.
    """
    filled = used_bytes()
    has = min(total(), filled + _free_bytes())
    if filled > _MOST * has:
        raise UserError(
            f"{what} has filled {size(filled)} of the {size(has)} of memory that other "
            "programs leave; use a smaller file, or a machine with more memory"
        )


def _free_bytes():
    """The bytes of memory and swap that no process fills."""
    found = re.findall(
        r"(?:MemAvailable|SwapFree):\s*(\d+) kB", _content("/proc/meminfo")
    )
    return 1024 * sum(map(int, found)) if found else total()


def _content(path):
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except OSError:
        return ""
