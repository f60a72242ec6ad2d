from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.apps.ingest.description import (
    DESCRIPTION_FILES,
    EmbeddedMetadata,
    deletions_of,
    describe_object,
    read_embedded_metadata,
)
from waybill.apps.ingest.formats import anvl, dublin_core
from waybill.apps.ingest.formats.anvl import Erc
from waybill.apps.ingest.formats.checkm import BadManifest, ManifestComplaint, ManifestRow, write_storage_manifest
from waybill.apps.ingest.formats.checkm.reader import read_storage_manifest
from waybill.apps.ingest.profile import Profile
from waybill.apps.ingest.submission import PayloadType, Submission
from waybill.errors import FormatError

ARK = "ark:/99999/fk4x"
PROFILE = Profile(
    name="p",
    owner="ark:/99999/fk4owner",
    collections=("ark:/99999/fk4c", "ark:/99999/fk4d"),
    aggregate="MRT-collection",
)
DATACITE = b"""<?xml version="1.0"?><resource xmlns="http://datacite.org/schema/kernel-4">
<creators><creator><creatorName>Cite, A</creatorName></creator><creator><creatorName>Cite, B</creatorName></creator></creators>
<titles><title>Cited title</title></titles><publisher>Press</publisher><publicationYear>2001</publicationYear></resource>"""


def submission(**said: object) -> Submission:
    fields: dict[str, object] = {
        "profile": "p",
        "url": "http://x",
        "type": PayloadType.FILE,
        "batch_id": "bid-1",
        "job_id": "jid-1",
    }
    return Submission(**(fields | said))  # type: ignore[arg-type] # a test's own words


def test_the_system_files() -> None:
    said = submission(
        title="Hunt",
        creator="Ann",
        date="2009",
        local_ids=("l1", "l2"),
        submitter="ann/Ann",
        filename="a.txt",
        submitted_at="2026-01-01",
    )
    files = describe_object(said, PROFILE, ARK).files
    assert files["mrt-owner.txt"] == b"ark:/99999/fk4owner\n"
    assert files["mrt-membership.txt"] == b"ark:/99999/fk4c\nark:/99999/fk4d\n"
    assert anvl.read(files["mrt-mom.txt"]) == [
        ("primaryIdentifier", ARK),
        ("type", "MRT-curatorial"),
        ("role", "MRT-content"),
        ("aggregate", "MRT-collection"),
        ("localIdentifier", "l1"),
        ("localIdentifier", "l2"),
    ]
    assert dict(anvl.read(files["mrt-ingest.txt"])) == {
        "ingest": "Waybill",
        "submissionDate": "2026-01-01",
        "batch": "bid-1",
        "job": "jid-1",
        "userAgent": "ann/Ann",
        "profile": "p",
        "type": "file",
        "mode": "add",
        "file": "a.txt",
    }
    assert anvl.read_erc(files["mrt-erc.txt"]) == Erc("Ann", "Hunt", "2009", (ARK, "l1", "l2"))
    assert dublin_core.read(files["mrt-dc.xml"]) == {
        "title": ["Hunt"],
        "creator": ["Ann"],
        "date": ["2009"],
        "identifier": [ARK, "l1", "l2"],
    }


def test_what_is_not_known_is_unassigned() -> None:
    assert describe_object(submission(), PROFILE, ARK).files["mrt-erc.txt"].decode() == (
        f"erc:\nwho: (:unas)\nwhat: (:unas)\nwhen: (:unas)\nwhere: {ARK}\n"
    )


def test_a_second_run_describes_in_the_same_bytes() -> None:
    said = submission(title="Hunt", local_ids=("l1",))
    assert describe_object(said, PROFILE, ARK) == describe_object(said, PROFILE, ARK)


def test_the_submission_counts_before_mrt_erc_before_mrt_dc_before_datacite() -> None:
    erc = b"erc:\nwho: Erc\nwhat: (:unas)\nwhen: 1999\n"
    dc = dublin_core.write({"title": ["Dc title"], "creator": ["Dc"], "subject": ["s1", "s2"]})
    metadata = read_embedded_metadata({"mrt-erc.txt": erc, "mrt-dc.xml": dc, "mrt-datacite.xml": DATACITE})
    found = describe_object(submission(date="2009"), PROFILE, ARK, metadata)
    assert (found.erc.who, found.erc.what, found.erc.when) == ("Erc", "Dc title", "2009")
    assert (found.about["creator"], found.about["title"], found.about["date"]) == ("Erc", "Dc title", "2009")
    described = dublin_core.read(found.files["mrt-dc.xml"])
    assert (described["creator"], described["subject"], described["publisher"]) == (["Erc"], ["s1", "s2"], ["Press"])
    alone = describe_object(submission(), PROFILE, ARK, read_embedded_metadata({"mrt-datacite.xml": DATACITE}))
    assert (alone.erc.who, alone.erc.what, alone.erc.when) == ("Cite, A; Cite, B", "Cited title", "2001")


def test_the_form_counts_before_the_files_in_dublin_core() -> None:
    metadata = read_embedded_metadata({"mrt-dc.xml": dublin_core.write({"subject": ["theirs"], "rights": ["all"]})})
    said = submission(dc={"subject": "a; b", "title": "Form title"}, title="Title", datacite_type="Dataset")
    described = dublin_core.read(describe_object(said, PROFILE, ARK, metadata).files["mrt-dc.xml"])
    assert described == {
        "title": ["Form title"],
        "subject": ["a", "b"],
        "rights": ["all"],
        "type": ["Dataset"],
        "identifier": [ARK],
    }


def test_a_profile_may_keep_local_ids_out_of_dublin_core() -> None:
    profile = Profile(name="p", local_id_in_dublin_core=False)
    assert dublin_core.read(describe_object(submission(local_ids=("l1",)), profile, ARK).files["mrt-dc.xml"])[
        "identifier"
    ] == [ARK]


def test_the_inventory_gets_an_embargo_and_of_both_names_of_collections() -> None:
    metadata = read_embedded_metadata({"mrt-embargo.txt": b"embargoEndDate: 2031-01-01\n"})
    assert metadata.embargo == datetime(2031, 1, 1, tzinfo=UTC)
    about = describe_object(submission(collections=("mnemo",)), PROFILE, ARK, metadata).about
    assert about["embargo"] == "2031-01-01T00:00:00Z"
    assert about["collections"] == ["ark:/99999/fk4c", "ark:/99999/fk4d", "mnemo"]
    assert (
        "embargo"
        not in describe_object(
            submission(), PROFILE, ARK, read_embedded_metadata({"mrt-embargo.txt": b"embargoEndDate: none\n"})
        ).about
    )


def test_deletions_belong_to_updates_and_to_the_depositors_files() -> None:
    metadata = EmbeddedMetadata(deletions=("a.txt", "producer/b.txt"))
    assert deletions_of(submission(update=True, deletions=("c.txt", "a.txt")), metadata) == (
        "producer/a.txt",
        "producer/b.txt",
        "producer/c.txt",
    )
    assert deletions_of(submission(), metadata) == ()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("mrt-erc.txt", b"no label\n"),
        ("mrt-dc.xml", b"<!DOCTYPE x><x/>"),
        ("mrt-datacite.xml", b"<resource>"),
        ("mrt-embargo.txt", b"embargoEndDate: soon\n"),
        ("mrt-delete.txt", b"../x\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(name: str, data: bytes) -> None:
    with pytest.raises(FormatError, match=f"producer/{name} cannot be read"):
        read_embedded_metadata({name: data})


@given(
    st.sampled_from(sorted(DESCRIPTION_FILES)),
    st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
)
def test_whatever_a_depositor_sends_is_read_or_refused_with_a_sentence(name: str, data: bytes) -> None:
    refusal = ""
    try:
        written = describe_object(submission(), PROFILE, ARK, read_embedded_metadata({name: data})).files["mrt-erc.txt"]
    except FormatError as error:
        written, refusal = b"", str(error)
    assert written.startswith(b"erc:\n") or "cannot be" in refusal


def test_a_storage_manifest_is_read_as_it_was_written() -> None:
    rows = [
        ManifestRow(6, "file:///w/a%20b", "producer/a b", "sha256", "ab" * 32, 3, "", "text/plain"),
        ManifestRow(7, "http://x/b", "system/b", "sha256", "cd" * 32, 0),
    ]
    lines = list(write_storage_manifest(rows))
    read = read_storage_manifest(lines)
    assert [(row.url, row.name, row.digest, row.size, row.mime) for row in read] == [
        (row.url, row.name, row.digest, row.size, row.mime) for row in rows
    ]
    with pytest.raises(BadManifest, match="is there twice"):
        read_storage_manifest([*lines[:-1], lines[-2], lines[-1]])


CELLS = st.sampled_from(
    [
        "http://x/a",
        "file:///a",
        "sha-256",
        "ab" * 32,
        "md5",
        "12",
        "-1",
        "",
        "producer/a",
        "../a",
        "a\0b",
        "\ud7ff",
        "[",
    ]
)
LINES = st.binary(max_size=60) | st.lists(CELLS, max_size=9).map(lambda cells: " | ".join(cells).encode())


@given(st.lists(LINES, max_size=8), st.booleans())
def test_whatever_comes_as_a_storage_manifest_is_read_or_refused_with_its_line(lines: list[bytes], ends: bool) -> None:
    rows: list[ManifestRow] = []
    wrong: list[ManifestComplaint] = []
    try:
        rows = read_storage_manifest([*lines, b"#%eof"] if ends else lines)
    except BadManifest as error:
        wrong = error.complaints
    assert bool(rows) != bool(wrong)
    assert all(len(row.digest) == 64 and row.size is not None and row.name for row in rows)
