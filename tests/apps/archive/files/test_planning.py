"""Which files go into which archive."""

import itertools
import os

from hypothesis import example, given
from hypothesis import strategies as st

from waybill.apps.archive.files import ArchiveLimits, FileEntry, plan_archives
from waybill.apps.archive.files.tar_headers import _make_any_headers, make_headers, padded


def make_entry(path: str, size: int = 0, kind: str = "file") -> FileEntry:
    return FileEntry(path, kind, 0o644, 1, 1, size, 1_500_000_000_000_000_000, 1, 1, 1)  # type: ignore[arg-type]


def plan(sizes: list[int], **limits: int) -> list[list[int]]:
    entries = [make_entry(f"d/{number}", size) for number, size in enumerate(sizes)]
    return [[entry.size for entry in archive.entries] for archive in plan_archives(entries, ArchiveLimits(**limits))]


KIB = 1024


def test_archives_are_between_minimum_and_maximum() -> None:
    assert plan([10 * KIB] * 7, min_size=20 * KIB, max_size=40 * KIB, max_count=100) == [[10 * KIB] * 3, [10 * KIB] * 4]


def test_what_remains_joins_its_neighbour() -> None:
    assert plan([10 * KIB] * 4, min_size=20 * KIB, max_size=40 * KIB, max_count=100) == [[10 * KIB] * 4]


def test_only_a_whole_set_may_be_smaller_than_the_minimum() -> None:
    assert plan([1], min_size=20 * KIB, max_size=40 * KIB, max_count=100) == [[1]]
    assert plan([], min_size=20 * KIB, max_size=40 * KIB, max_count=100) == []


def test_a_file_above_the_maximum_is_alone() -> None:
    assert plan([KIB, 100 * KIB, 2 * KIB, 3 * KIB], min_size=2 * KIB, max_size=20 * KIB, max_count=100) == [
        [100 * KIB],
        [KIB, 2 * KIB, 3 * KIB],
    ]


def test_a_remainder_joins_the_large_file_only_if_there_is_no_other_neighbour() -> None:
    assert plan([100 * KIB, 1], min_size=20 * KIB, max_size=40 * KIB, max_count=100) == [[100 * KIB, 1]]
    assert plan([30 * KIB, 30 * KIB, 100 * KIB, 1], min_size=20 * KIB, max_size=40 * KIB, max_count=100) == [
        [100 * KIB],
        [30 * KIB],
        [30 * KIB, 1],
    ]


def test_a_directory_is_not_cut_for_nothing() -> None:
    entries = [make_entry(f"{directory}/{number}", 0) for directory in "abcd" for number in range(95)]
    archives = list(plan_archives(entries, ArchiveLimits(min_size=1, max_size=10**9, max_count=100)))
    assert [{entry.path[0] for entry in archive.entries} for archive in archives] == [{"a"}, {"b"}, {"c"}, {"d"}]


@example(sizes=[100_000, 1], min_size=20_000, max_size=40_000, max_count=3)
@given(
    sizes=st.lists(st.integers(0, 100_000), max_size=60),
    min_size=st.integers(1, 30_000),
    max_size=st.integers(30_000, 80_000),
    max_count=st.integers(1, 20),
)
def test_any_plan_has_every_entry_once_and_keeps_the_limits(
    sizes: list[int], min_size: int, max_size: int, max_count: int
) -> None:
    limits = ArchiveLimits(min_size=min_size, max_size=max_size, max_count=max_count)
    entries = [make_entry(f"d{number // 7}/{number}", size) for number, size in enumerate(sizes)]
    archives = list(plan_archives(entries, limits))
    assert archives == list(plan_archives(entries, limits))
    assert [archive.number for archive in archives] == list(range(1, len(archives) + 1))
    assert sorted(entry.path for archive in archives for entry in archive.entries) == sorted(e.path for e in entries)
    for archive in archives:
        at = 0
        for entry in archive.entries:
            assert (entry.archive, entry.offset) == (archive.number, at)
            at += len(make_headers(entry)) + padded(entry.size)
        assert archive.size == at + 1024
        assert archive.size >= min_size or len(archives) == 1
        large = [entry for entry in archive.entries if len(make_headers(entry)) + padded(entry.size) + 1024 > max_size]
        if not large:
            assert archive.size <= max_size + 2 * min_size + 2048
            assert len(archive.entries) <= 6 * max_count + min_size


def test_names_of_any_length_have_headers_of_whole_blocks() -> None:
    for length, letter in itertools.product(range(1, 260), ("n", "ü", os.fsdecode(b"\xff"))):
        headers = make_headers(make_entry(letter * length))
        assert len(headers) % 512 == 0
        at = 0
        while at < len(headers):
            block = headers[at : at + 512]
            assert int(block[148:154], 8) == sum(block[:148]) + sum(block[156:]) + 8 * 32
            at += 512 + (padded(int(block[124:135], 8)) if block[156:157] == b"x" else 0)


@given(
    path=st.text(st.characters(max_codepoint=127, exclude_characters="\0"), min_size=1, max_size=110),
    mode=st.integers(0, 0o7777),
    owners=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    size=st.one_of(st.integers(0, 10_000), st.integers(0, 2**40)),
    mtime_ns=st.one_of(st.integers(10**18, 10**19), st.integers(-(10**18), 10**20)),
)
def test_the_quick_way_to_headers_gives_the_same(
    path: str, mode: int, owners: tuple[int, int], size: int, mtime_ns: int
) -> None:
    entry = FileEntry(path, "file", mode, *owners, size, mtime_ns, 1, 1, 1)
    assert make_headers(entry) == _make_any_headers(entry)
