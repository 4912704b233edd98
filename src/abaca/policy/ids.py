"""Raw ids as items: of histories, and of the lists of policies."""

from collections.abc import Sequence

import numpy as np

from abaca.data.catalogue import Catalogue, check_id
from abaca.histories import Ints
from abaca.policy.policy import listed
from abaca.types import PAD, Id

LONG, KEPT = 100, 8
"""From this number of ids on the items of a list are kept, and how many lists are."""

Unknown = dict[Id, None]
"""Ids that the model does not know, each once, in their order."""


class Ids:
    """Looks up ids in a catalogue. The items of the latest long lists, such as the stock, are kept."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._kept: dict[tuple[Id, ...], tuple[Ints, Unknown]] = {}

    def items(self, ids: Sequence[Id], unknown: Unknown) -> Ints:
        """Items of raw ids in their order; ids that the model does not know are PAD, and put into `unknown`."""
        items = []
        for raw in listed(ids, "ids"):
            id = check_id(raw)
            item = self.catalogue.index(id)
            if item is None or item >= self.catalogue.size:
                unknown[id] = None
                item = PAD
            items.append(item)
        return np.array(items, dtype=np.int64)

    def known(self, ids: tuple[Id, ...], unknown: Unknown) -> Ints:
        """The known items of a list, ascending."""
        found = self._kept.get(ids) if len(ids) >= LONG else None
        if found is None:
            missing: Unknown = {}
            found = np.setdiff1d(self.items(ids, missing), PAD), missing
            if len(ids) >= LONG:
                self._kept = dict(list(self._kept.items())[1 - KEPT :]) | {ids: found}
        unknown.update(found[1])
        return found[0]
