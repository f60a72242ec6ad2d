"""What the routes of ingest share: their request context, and the URL paths of objects."""

from __future__ import annotations

from typing import Annotated, cast
from urllib.parse import quote

from fastapi import Depends

from waybill.apps.ingest.machine.holds import deposit_scope_of
from waybill.apps.ingest.resources import IngestResources
from waybill.apps.ingest.submission import Submission
from waybill.http.request_context import RequestContext

PREFIX = "/api/v1/ingest"


class IngestRequestContext(RequestContext):
    @property
    def resources(self) -> IngestResources:
        return cast(IngestResources, self.environment.resources_of("ingest"))


IngestRequest = Annotated[IngestRequestContext, Depends(IngestRequestContext)]


def check_may_deposit(context: RequestContext, submission: Submission) -> None:
    """Raise unless the caller may deposit this: for its submitter, and into its collection."""
    owner = submission.submitter or submission.owner
    context.check_may_submit(owner, deposit_scope_of(submission), "ingest")


def object_path_of(ark: str) -> str:
    """Return the URL path of an object."""
    return f"{PREFIX}/objects/{quote(ark, safe='')}"


def version_path_of(ark: str, number: int) -> str:
    return f"{object_path_of(ark)}/versions/{number}"


def file_path_of(ark: str, number: int, path: str) -> str:
    return f"{version_path_of(ark, number)}/files/{quote(path)}"
