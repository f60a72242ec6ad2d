"""The pages: HTML from the server, over the same views as the API and the command line.

    PageRoute (page_routes.py)     authenticates a request, checks the form, and turns errors into pages
    PageContext (page_context.py)  what a page receives: who asks, the form, the store, and `render`
    templates/, static/            one base template, one style sheet, components.html; htmx, and modules of our own

Each module beside these is one page, or a few that belong together: its routes, and what it reads. No page has SQL or a rule of a machine:
it reads views, and its buttons are the actions of the machine's table. Every page works without JavaScript, which adds what moves:
`static/live.js` shares one stream of changes among the tabs of a browser.

An application brings pages of its own with `Application.pages`: docs/how-to/write-an-application.md shows one.

    def build_pages(environment: Environment) -> ApplicationPages:
        from photolab.pages import PAGES                       # imported late: a worker needs no pages

        return PAGES

    ApplicationPages(router, (NavigationEntry("Photos", "/photolab/photos"),), package="photolab.pages",
                     record_parts=(RecordPart("photo", "photolab/photo_part.html", read_photo),), search=find_photos)

`package` holds the folders templates/ and static/; in a template and in `static_url` their files are below the application's name.
`{% extends "base.html" %}` gives the frame, components.html the parts.
Forms begin with `{{ csrf_field() }}`; a part with `data-refresh` is loaded again when its records move.
"""

from waybill.pages.application_pages import ApplicationPages, FoundLink, NavigationEntry, RecordPart
from waybill.pages.page_context import PageContext, PageRequest
from waybill.pages.page_routes import make_page_router

__all__ = [
    "ApplicationPages",
    "FoundLink",
    "NavigationEntry",
    "PageContext",
    "PageRequest",
    "RecordPart",
    "make_page_router",
]
