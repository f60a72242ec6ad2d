"""The catalogue of photos, which can be searched by caption and rebuilt from the records."""

from waybill import Record
from waybill.index import CatalogueTables


class PhotoCatalogue:
    name = "photolab"
    package = "photolab.catalogue"

    def clear(self, tables: CatalogueTables) -> int:
        return tables.execute("clear_some", n=1000)

    def enter(self, tables: CatalogueTables, source: Record) -> None:
        tables.execute("enter", id=source.id, caption=source.documents["picture"]["caption"])


PHOTOS = PhotoCatalogue()
