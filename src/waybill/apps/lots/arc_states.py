"""The state of an arc's lot under the names that other tools list: `arcs/project=…/arc=…/lot=LOT/STATE.arc`.

The catalogue and the records are the truth; these names follow them. A run that waits has no name, one that retries is running,
one that is cleaned is partial. The object says in a line what the name says, and which generation.
"""

from __future__ import annotations

import msgspec

from waybill.apps.lots.catalogue import LotTables
from waybill.apps.lots.declaration.documents import ArcDeclaration
from waybill.apps.lots.naming import ARC_STATES, ArcState, ArcStateKey
from waybill.apps.lots.units import Lot
from waybill.objects import Objects

MAX_REFRESHES = 20


def refresh_arc_state(
    objects: Objects, tables: LotTables, arc: ArcDeclaration, lot: Lot, *, previous: tuple[ArcState, ...] = ARC_STATES
) -> None:
    """Let the name say what the catalogue says. `previous`: the states whose names may be there. Safe to repeat: whoever
    writes looks again afterwards.
    """
    key = ArcStateKey(arc.project, arc.version, arc.name, str(lot))
    for _ in range(MAX_REFRESHES):
        row = tables.find_run(arc.id, lot)
        state = next((each for each in ARC_STATES if row is not None and each == row.state), None)
        if state is not None and row is not None:
            body = {"state": state, "generation": row.generation, "changed": row.changed, "message": row.message}
            objects.put(key._replace(state=state).key, msgspec.json.encode(body))
        for other in previous:
            if other != state:
                objects.delete(key._replace(state=other).key)
        after = tables.find_run(arc.id, lot)
        if (after and (after.generation, after.state)) == (row and (row.generation, row.state)):
            return
    raise RuntimeError(f"The state of {arc.title} for {lot} changes again and again; its name cannot be written now.")
