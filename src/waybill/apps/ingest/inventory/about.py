"""What a deposit says about its object, as the version's manifest carries it and the inventory files it.

    {"owner": "ark:/13030/owner", "collections": ["ark:/13030/c"], "local_ids": ["a", "b"], "title": "", "creator": "", "date": "",
     "embargo": "2031-01-01T00:00:00Z"}

Everything may be missing. What is of another kind, or unknown, is left to whoever reads the manifest itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

import msgspec

from waybill.manifests import Header

MOST_WORDS = 200  # of one object; the rest of a long title is not found by its words
LONGEST_WORD = 64

_WORD = re.compile(r"\w+")


class About(msgspec.Struct, frozen=True, kw_only=True):
    owner: str = ""
    collections: tuple[str, ...] = ()
    local_ids: tuple[str, ...] = ()
    title: str = ""
    creator: str = ""
    date: str = ""
    embargo: str = ""  # until when, RFC 3339

    @classmethod
    def of(cls, header: Header) -> About:
        """What the first line of a version's manifest says."""
        told = header.about.get("about")
        return cls.read(told if isinstance(told, dict) else {})

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> About:
        def text(name: str) -> str:
            value = told.get(name, "")
            return _clean(value) if isinstance(value, str) else ""

        def texts(name: str) -> tuple[str, ...]:
            value = told.get(name, [])
            found = (
                [_clean(item) for item in value if isinstance(item, str) and item]
                if isinstance(value, list | tuple)
                else []
            )
            return tuple(dict.fromkeys(found))

        return cls(
            owner=text("owner"),
            collections=texts("collections"),
            local_ids=texts("local_ids"),
            title=text("title"),
            creator=text("creator"),
            date=text("date"),
            embargo=text("embargo"),
        )

    def words(self) -> list[str]:
        return words_of(" ".join((self.title, self.creator, self.date)))[:MOST_WORDS]


def _clean(text: str) -> str:
    return text.replace("\0", "")  # PostgreSQL keeps none


def words_of(text: str) -> list[str]:
    """The words of a text, each once, so folded that case, accents in another form and wide letters make no
    difference.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return list(dict.fromkeys(word[:LONGEST_WORD] for word in _WORD.findall(folded)))
