"""Runs shards that write the same records, each in a thread whose name is its number."""

import threading
import time

from errors import UserError
from text.generation.generate import generate


def thread_of(settings, index):
    """A thread that runs one of two shards."""
    return threading.Thread(
        target=generate,
        name=str(index),
        args=[settings],
        kwargs={"shard": (index, 2)},
        daemon=True,
    )


def together(settings, number=2, order=None):
    """Runs all shards at once; returns the result or error of each."""
    ended = {}

    def run(index):
        try:
            ended[index] = generate(settings, shard=(index, number))
        except UserError as error:
            ended[index] = error

    threads = []
    for index in order or range(number):
        name = str(index)
        thread = threading.Thread(target=run, name=name, args=[index], daemon=True)
        thread.start()
        threads.append(thread)
        time.sleep(0.05)
    for thread in threads:
        thread.join(60)
    assert sorted(ended) == list(range(number))
    return ended
