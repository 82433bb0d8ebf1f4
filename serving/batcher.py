"""Answers the requests of many clients in batches, each in its turn.

A model that is free begins at once. While it works, requests wait. Then all of them have a
turn, in which rows of similar length share a batch. A request with more rows than one batch
goes to the end of the queue with the rest: one with a thousand does not hold up the others.
"""

import asyncio
import concurrent.futures
import itertools
from collections.abc import Callable
from typing import NamedTuple

from serving.predictor import Served

_TURN = 8  # batches, so that rows of similar length are found, and new ones wait little


class Limits(NamedTuple):
    """What a client may expect of the model.

    Attributes:
        batch_size: rows that go through the model at once.
        queue_size: requests that may wait.
        timeout_seconds: until a request is given up.
    """

    batch_size: int = 32
    queue_size: int = 256
    timeout_seconds: float = 60.0


class _Asked:
    """A request of a client: rows that wait, by number, and the answers so far."""

    def __init__(self, rows):
        self.rows = {i: _Row(self, i, row) for i, row in enumerate(rows)}
        self._answers, self._missing = [None] * len(rows), len(rows)
        self.answered = asyncio.get_running_loop().create_future()

    @property
    def is_waiting(self):
        return bool(self.rows) and not self.answered.done()

    def give(self, number, answer):
        self._answers[number] = answer
        self._missing -= 1
        if not self._missing and not self.answered.done():
            self.answered.set_result(self._answers)


class _Row(NamedTuple):
    asked: _Asked
    number: int
    request: dict


class Batcher:
    """The queue before a model; made in the event loop that asks it.

    Attributes:
        predictor: the model.
    """

    def __init__(
        self,
        predictor: Served,
        limits: Limits,
        note_batch: Callable[[int], None] = lambda rows: None,
    ):
        """Args:
        note_batch: hears how many rows each batch has.
        """
        self.predictor, self._limits = predictor, limits
        self._note_batch = note_batch
        self._waiting: list[_Asked] = []
        self._arrived, self._is_closed = asyncio.Event(), False
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._work = asyncio.create_task(self._answer_all())

    @property
    def queue_length(self) -> int:
        """How many requests wait, without those that were given up."""
        return sum(asked.is_waiting for asked in self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether another request would be refused."""
        return self.queue_length >= self._limits.queue_size

    async def predict(self, requests: list[dict]) -> list[dict]:
        """The answers to a client's requests, which `Served.check` has accepted.

        Raises:
            asyncio.QueueFull: too many wait.
            TimeoutError: it took too long.
        """
        if not requests:
            return []
        if self.is_full:
            raise asyncio.QueueFull
        asked = _Asked(requests)
        self._waiting.append(asked)
        self._arrived.set()
        async with asyncio.timeout(self._limits.timeout_seconds):
            return await asked.answered

    async def close(self) -> None:
        """Returns when all that waited is answered."""
        self._is_closed = True
        self._arrived.set()
        await self._work
        self._thread.shutdown(wait=False)

    def stop(self) -> None:
        """Answers nothing more."""
        self._work.cancel()
        self._thread.shutdown(wait=False)

    async def _answer_all(self):
        while True:
            await self._arrived.wait()
            if not self._waiting:
                return  # closed
            rows = self._take()
            if not self._waiting and not self._is_closed:
                self._arrived.clear()
            await self._answer(rows)

    def _take(self):
        """The rows of the next turn; none if all that waited were given up."""
        size, rows, left = self._limits.batch_size, [], []
        waiting = [asked for asked in self._waiting if asked.is_waiting]
        while waiting and len(rows) < _TURN * size:
            asked = waiting.pop(0)
            numbers = [*itertools.islice(asked.rows, size)]
            rows += [asked.rows.pop(number) for number in numbers]
            if asked.rows:
                left.append(asked)
        self._waiting = waiting + left
        return rows

    async def _answer(self, rows):
        rows = [row for row in rows if not row.asked.answered.done()]  # not given up
        if not rows:
            return
        size = self._limits.batch_size
        for first in range(0, len(rows), size):
            self._note_batch(len(rows[first : first + size]))
        requests = [row.request for row in rows]
        loop = asyncio.get_running_loop()
        try:
            answers = await loop.run_in_executor(
                self._thread, self.predictor.predict, requests, size
            )
        except Exception as error:
            askers = {id(row.asked): row.asked for row in rows}.values()
            if len(askers) == 1:
                if not rows[0].asked.answered.done():  # otherwise its client is gone
                    rows[0].asked.answered.set_exception(error)
                return
            for asked in askers:  # to find the one that fails
                await self._answer([row for row in rows if row.asked is asked])
            return
        for row, answer in zip(rows, answers, strict=True):
            row.asked.give(row.number, answer)
