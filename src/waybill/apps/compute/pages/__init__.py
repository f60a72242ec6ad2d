"""The pages of compute: objects, with upload and preview, and jobs, with their output while they run.

objects   /compute/objects?at=/ACCOUNT/stor     a directory or an object, its preview, a form to upload
jobs      /compute/jobs                           those that run, and the latest; a form to start one
          /compute/jobs/ACCOUNT/ID                one job: output as it comes, errors by their cause, timings, rerun
charts    timings as SVG

Everything works without scripts; static/job_tail.js adds outputs and progress while a job runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from waybill.apps.compute.pages import job_pages, object_pages
from waybill.http.uploads import UploadSlots
from waybill.pages import ApplicationPages, NavigationEntry, make_page_router

if TYPE_CHECKING:
    from waybill.environment import Environment


def build_pages(environment: Environment) -> ApplicationPages:
    router = make_page_router("/compute")
    object_pages.add_routes(router, UploadSlots())
    job_pages.add_routes(router)
    return ApplicationPages(
        router,
        navigation=(
            NavigationEntry("Objects", "/compute/objects", somewhere=True),
            NavigationEntry("Jobs", "/compute/jobs", somewhere=True),
        ),
        package="waybill.apps.compute.pages",
    )
