"""What an application gives with `Application.pages`, and how the pages of all applications are collected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from waybill.errors import InputError
from waybill.record import StoreError

if TYPE_CHECKING:
    from fastapi import APIRouter

    from waybill.environment import Environment
    from waybill.pages.page_context import PageContext
    from waybill.record import Record, Store


class NavigationEntry(NamedTuple):
    """A link in the head of every page."""

    label: str
    path: str
    role: str = "reader"  # who sees it
    somewhere: bool = False  # whoever has the role for some records sees it too


class FoundLink(NamedTuple):
    """What a search of an application found."""

    label: str
    path: str
    about: str = ""


class RecordPart(NamedTuple):
    """What an application shows on the page of a record of this kind, above its documents."""

    kind: str
    template: str
    # more values for the template, as `values`; the record has its documents
    build: Callable[[PageContext, Store, Record], Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class ApplicationPages:
    """The pages of an application."""

    router: APIRouter  # made by make_page_router
    navigation: tuple[NavigationEntry, ...] = ()
    shortcuts: tuple[NavigationEntry, ...] = ()  # buttons beside the application's name on the home page
    package: str = ""  # the package that holds templates/ and static/; "": it has none
    record_parts: tuple[RecordPart, ...] = ()  # what takes part in the engine's page of a record
    # what the one search box finds besides records; called with the context and the text
    search: Callable[[PageContext, str], list[FoundLink]] | None = None
    is_search_scoped: bool = (
        False  # it finds only what whoever asks may see; else readers of everything alone are shown it
    )


def collect_application_pages(environment: Environment) -> dict[str, ApplicationPages]:
    """Return the pages by application. Raises InputError for an application whose pages cannot be built."""
    return {
        application.name: _build(application.name, application.pages, environment)
        for application in environment.applications
        if application.pages is not None
    }


def _build(name: str, build: Any, environment: Environment) -> ApplicationPages:
    try:
        pages = build(environment)
    except (InputError, StoreError):
        raise  # their messages say what is wrong
    except Exception as error:  # anything that the code of an application raises
        raise InputError(
            f"The pages of the application {name} cannot be built: {type(error).__name__}: {error}. "
            "Repair or uninstall it, or leave it out with the setting `applications`.",
            code="bad-application",
        ) from error
    if not isinstance(pages, ApplicationPages):
        raise InputError(
            f"The application {name} gives {pages!r} as its pages; it must be waybill.pages.ApplicationPages.",
            code="bad-application",
        )
    return pages


def list_navigation(pages: Iterable[ApplicationPages]) -> list[NavigationEntry]:
    return [entry for each in pages for entry in each.navigation]
