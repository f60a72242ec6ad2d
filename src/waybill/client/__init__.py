"""The client: what ordinary users do with records, on a server or on a store, behind one interface.

    with Client("https://waybill.example.org", token_file=Path("~/.waybill-token")) as client:
        order = client.submit("shipment", {"order": {"parcels": 3}})
        client.act("shipment", order["id"], "cancel", why="sent twice")

records_client.py   `RecordsClient`, the interface: everything is answered in the JSON shapes of waybill.views
server_client.py    `Client`: a server's HTTP API
local_client.py     `LocalClient`: the store itself, for whoever may open it; the command line uses it without --server
"""

from waybill.client.local_client import LocalClient
from waybill.client.records_client import ActionResultView, RecordsClient
from waybill.client.server_client import SERVER_VARIABLE, TOKEN_FILE_VARIABLE, Client

__all__ = ["SERVER_VARIABLE", "TOKEN_FILE_VARIABLE", "ActionResultView", "Client", "LocalClient", "RecordsClient"]
