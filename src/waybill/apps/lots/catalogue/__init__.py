"""The catalogue of lots: what every lot and every run is, for ever.

Records move and are removed some days after they ended; what they came to is here, in a durable catalogue. So a repeated
event finds that its run is done, a report over ten years reads some thousand rows, and nothing is forgotten.

lot_tables.py   publishing lots, starting and ending runs, taking arrivals
calendar.py     one letter for each lot of a day: what reports and heat maps read
"""

from waybill.apps.lots.catalogue.calendar import LotClass
from waybill.apps.lots.catalogue.lot_tables import Arrival, LotCatalogue, LotRow, LotTables, RunRow

__all__ = ["Arrival", "LotCatalogue", "LotClass", "LotRow", "LotTables", "RunRow"]
