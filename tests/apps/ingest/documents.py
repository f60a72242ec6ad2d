"""Documents as tests write and read them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from tests.apps.ingest.ingest_fixture import IngestFixture
from waybill.apps.ingest.batch_report import ReportedJob
from waybill.apps.ingest.documents import BatchReport
from waybill.manifests import record_lists
from waybill.record import Record, document_of


def by_name(*documents: msgspec.Struct) -> dict[str, Any]:
    """The JSON of typed documents, to which a test adds others."""
    return {
        declared.name: msgspec.json.decode(declared.encode(each))
        for each in documents
        if (declared := document_of(type(each)))
    }


def read_report_jobs(ingest: IngestFixture, batch: Record) -> Iterator[ReportedJob]:
    """The jobs in the last report of a batch."""
    report = ingest.get("batch", batch.id).document(BatchReport)
    assert report.jobs is not None
    return record_lists.read_list(ingest.environment.objects, report.jobs, ReportedJob)
