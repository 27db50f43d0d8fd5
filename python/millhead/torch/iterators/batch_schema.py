"""What batches look like: learnt from those that come, so that later ones can go into slots."""

from __future__ import annotations

import contextlib
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from millhead import Advice, _core
from millhead.torch.loader_stats import advise

if TYPE_CHECKING:
    from millhead.torch.loader import Engine

#: Slots beyond the batches under way: `for b in loader` holds one while it asks for the next.
SPARE_SLOTS = 3


@dataclass(frozen=True)
class Schema:
    """What batches look like: their structure with None for each leaf, and the bytes they take."""

    structure: Any
    pickled: bytes
    slot_bytes: int


class Learner:
    """Keeps the schema of a loader's batches up to date."""

    def __init__(self, engine: Engine, consumer_end: _core.ConsumerEnd, under_way: int) -> None:
        self._engine = engine
        self._consumer_end = consumer_end
        self._patience = 2 * under_way
        self.strangers = 0  # batches in a row that looked unlike the schema
        if engine.schema is not None:
            self._use(engine.schema)

    def learn(self, batch: Any) -> None:
        """Let a batch of the general path teach what the next ones look like."""
        schema = self._engine.schema
        found = self._consumer_end.measure(batch)
        if found is None:
            return
        structure, size = found
        if schema is not None and not self._consumer_end.same_structure(structure):
            self.strangers += 1
            if self.strangers < self._patience:
                return
        elif schema is not None:
            if size <= schema.slot_bytes:
                return
            size += size // 4  # sizes vary: leave room, so as not to learn again too soon
        self.strangers = 0
        schema = Schema(structure, pickle.dumps(structure, 5), size)
        with contextlib.suppress(Advice):  # where warnings are errors, the batch matters more
            if self._use(schema):
                self._engine.schema = schema

    def _use(self, schema: Schema) -> bool:
        slots = self._engine.under_way + SPARE_SLOTS
        try:
            self._consumer_end.set_schema(
                schema.structure, schema.pickled, schema.slot_bytes, slots
            )
        except MemoryError as error:
            advise(
                "no-slots",
                f"no shared memory for batches of {schema.slot_bytes} bytes ({error}): they take "
                "the slower general path; raise memory=, or use fewer workers, a smaller "
                "prefetch_factor or smaller batches",
            )
            return False
        return True
