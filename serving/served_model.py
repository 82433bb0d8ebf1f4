"""A model under its name, and how a newer one takes its place."""

from serving.batcher import Batcher, Limits
from serving.predictor import Served
from serving.prometheus import ModelCounts


class ServedModel:
    """What answers under a name.

    Attributes:
        batcher: of the predictor; there once `start` was called.
        counts: of all that happened under the name.
    """

    batcher: Batcher

    def __init__(self, name: str, predictor: Served, limits: Limits):
        self.name, self._limits = name, limits
        self._first = predictor
        self.counts = ModelCounts()

    @property
    def predictor(self) -> Served:
        """The model that answers now."""
        return self.batcher.predictor

    def start(self) -> None:
        """Begins to answer, in the event loop that calls it."""
        self.batcher = self._batcher_of(self._first)
        del self._first

    async def replace(self, predictor: Served) -> None:
        """Gives all further requests to another model.

        Returns when the earlier one has answered those that it has.
        """
        earlier, self.batcher = self.batcher, self._batcher_of(predictor)
        await earlier.close()

    def _batcher_of(self, predictor):
        return Batcher(predictor, self._limits, self.counts.note_batch)
