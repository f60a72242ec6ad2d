"""How names become paths: faithfully, inside the root, and in a form that other tools can read."""

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from waybill.objects import directory, directory_folders
from waybill.objects.directory import DirectoryObjects
from waybill.objects.directory_files import components_of, text_of
from waybill.objects.directory_listing import DirectoryListing
from waybill.objects.protocol import MAX_NAME_BYTES, ObjectNotFound, ObjectRequestRefused, check_name


def is_name(text: str) -> bool:
    try:
        check_name(text)
    except ObjectRequestRefused:
        return False
    return True


odd_text = st.text(st.sampled_from("aAbB%+o2541.-~ !/\u00e9\u0301\U0001f600"), max_size=40) | st.text(max_size=30)
segment = st.text(st.sampled_from("aA%éo+"), min_size=1, max_size=300)
any_name = (odd_text | st.lists(segment, min_size=1, max_size=4).map("/".join)).filter(is_name)


@given(any_name, any_name, st.booleans())
def test_two_names_are_two_paths(one: str, other: str, folding: bool) -> None:
    paths = [tuple(components_of(name, folding=folding)) for name in (one, other)]
    assert (one == other) == (paths[0] == paths[1])
    if folding:
        folded = [tuple(part.casefold() for part in path) for path in paths]
        assert (one == other) == (folded[0] == folded[1])
        assert all(part.isascii() for path in paths for part in path)


@given(any_name, st.booleans())
def test_a_path_leads_back_to_its_name(name: str, folding: bool) -> None:
    text = ""
    for component in components_of(name, folding=folding):
        assert 0 < len(os.fsencode(component)) <= 255
        assert component not in (".", "..", "%o")
        assert "/" not in component
        decoded = text_of(component, folding=folding)
        assert decoded is not None
        text += decoded[0] + ("" if decoded[1] else "/")
    assert text == name + "/"


def test_the_scheme_byte_by_byte() -> None:
    """Vectors written by hand: what is on disk must be readable by every later version."""
    assert components_of("jobs/42/files.jsonl") == ["jobs", "42", "files.jsonl"]
    assert components_of("100%/Übung A") == ["100%25", "Übung A"]
    assert components_of("100%/Übung A", folding=True) == ["100%25", "%C3%9Cbung %41"]
    assert components_of("x" * 240) == ["x" * 240]
    assert components_of("x" * 241) == ["x" * 240 + "%+", "x"]
    assert components_of("x" * 239 + "é" + "y") == ["x" * 239 + "%+", "éy"]
    assert components_of("%" * 81) == ["%25" * 80 + "%+", "%25"]


@pytest.mark.parametrize(
    "entry", ["%", "%zz", "%2", "%41", "a%c3", "%C3", "%25%+", "a%+", "", "%o", "x" * 241, "\udcff"]
)
def test_what_the_scheme_would_not_write_is_no_object(entry: str) -> None:
    assert text_of(entry) is None


@settings(deadline=None, max_examples=60)
@given(st.sets(any_name, max_size=12), st.data())
def test_listing_is_the_sorted_set_after_any_name(
    tmp_path_factory: pytest.TempPathFactory, names: set[str], data: st.DataObject
) -> None:
    with DirectoryObjects(tmp_path_factory.mktemp("objects"), fsync=False) as objects:
        for name in names:
            objects.put(name, name.encode())
        ordered = sorted(names, key=str.encode)
        assert [info.name for info in objects.list()] == ordered
        after = data.draw(st.sampled_from([*ordered, "a", ""]) | any_name)
        limit = data.draw(st.none() | st.integers(0, 5))
        expected = [name for name in ordered if name.encode() > after.encode()][:limit]
        assert [info.name for info in objects.list(after=after, limit=limit)] == expected
        for page in (1, 2, 3):  # however few entries of a folder are held at once
            listing = DirectoryListing(objects._folders, after, page, False)
            assert [info.name for info in listing.list_below([], "")][:limit] == expected


def test_ordinary_names_are_their_own_paths(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("ocfl/0=ocfl_1.1", b"ocfl_1.1\n")
        (tmp_path / "ocfl/by hand").write_bytes(b"found")
        assert (tmp_path / "ocfl/0=ocfl_1.1").read_bytes() == b"ocfl_1.1\n"
        assert [info.name for info in objects.list("ocfl")] == ["ocfl/0=ocfl_1.1", "ocfl/by hand"]
        assert objects.head("ocfl/by hand").sha256 is None


def test_links_are_followed_neither_out_nor_in(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    with DirectoryObjects(root, fsync=False) as objects:
        objects.put("real/file", b"inside")
        (root / "out").symlink_to(outside)
        (root / "in").symlink_to(root / "real")
        (root / "leaf").symlink_to(outside / "secret")
        for name in ("out/secret", "in/file", "leaf"):
            for ask in (objects.get, objects.head):
                with pytest.raises(ObjectNotFound):
                    ask(name)
            assert objects.delete(name) is False
        for name in ("out/new", "in/new"):
            with pytest.raises(ObjectRequestRefused, match="links are not followed"):
                objects.put(name, b"x")
        assert [info.name for info in objects.list()] == ["real/file"]
        assert list(objects.list("out")) == []
        objects.put("leaf", b"ours")  # takes the link's place, and not that of what it points at
        assert (outside / "secret").read_bytes() == b"secret"
        assert not (root / "leaf").is_symlink()
    assert os.listdir(outside) == ["secret"]


def test_pipes_and_other_things_are_no_objects(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "left%zz").write_bytes(b"")
        with pytest.raises(ObjectNotFound):
            objects.get("pipe")
        with pytest.raises(ObjectRequestRefused):
            objects.put("pipe/below", b"")
        assert objects.delete("pipe") is False
        assert list(objects.list()) == []


def test_empty_folders_do_not_pile_up(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a/b/c/d", b"")
        objects.put("a/x", b"")
        objects.delete("a/b/c/d")
        assert os.listdir(tmp_path / "a") == ["x"]
        objects.delete("a/x")
        assert os.listdir(tmp_path) == [".waybill"]


def test_a_file_system_that_cannot_exchange_refuses_a_prefix_that_is_an_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_folders, "_EXCHANGE", 1 << 20)  # a flag that the kernel does not know
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a", b"kept")
        with pytest.raises(ObjectRequestRefused, match="also a prefix"):
            objects.put("a/b", b"")
        with objects.get("a") as body:
            assert body.read() == b"kept"
        assert os.listdir(tmp_path / ".waybill/tmp") == []


def test_a_file_system_that_folds_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No such file system is at hand, so the finding is made up; that the written names survive folding is tested
    above.
    """
    monkeypatch.setattr(directory, "_is_folding", lambda tmp, token: True)
    names = ["A", "a", "é", "e\u0301", "a/B", "a/b"]
    with DirectoryObjects(tmp_path / "folding", fsync=False) as objects:
        for name in names:
            objects.put(name, name.encode())
        assert [info.name for info in objects.list()] == sorted(names, key=str.encode)
        on_disk = [entry for _, *entries in os.walk(tmp_path / "folding") for part in entries for entry in part]
        assert all(entry == entry.lower() or "%" in entry for entry in on_disk)
    monkeypatch.undo()
    with DirectoryObjects(
        tmp_path / "folding", fsync=False
    ) as again:  # moved to one that does not fold: written as before
        assert [info.name for info in again.list()] == sorted(names, key=str.encode)
    with DirectoryObjects(tmp_path / "apart", fsync=False):
        pass
    monkeypatch.setattr(directory, "_is_folding", lambda tmp, token: True)
    with pytest.raises(ObjectRequestRefused, match="takes for the same"):
        DirectoryObjects(tmp_path / "apart")


def test_folding_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    assert directory._is_folding(fd, "x") is False
    assert os.listdir(tmp_path) == []
    monkeypatch.setattr(directory, "_has_entry", lambda entry, folder: entry == "x-aé")
    assert directory._is_folding(fd, "x") is True
    monkeypatch.setattr(directory, "_has_entry", lambda entry, folder: entry == "x-Ae\u0301")
    assert directory._is_folding(fd, "x") is True
    os.close(fd)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"waybill":"objects","v":2,"folding":false}', "\0"])
def test_a_layout_of_another_version_is_left_alone(tmp_path: Path, text: str) -> None:
    DirectoryObjects(tmp_path).close()
    (tmp_path / ".waybill/layout.json").write_text(text)
    with pytest.raises(ObjectRequestRefused, match="layout"):
        DirectoryObjects(tmp_path)


def test_longest_names_have_room(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        for name in ("%" * MAX_NAME_BYTES, "/".join("%" * (MAX_NAME_BYTES // 2))):
            objects.put(name, b"x")
            assert [info.name for info in objects.list()] == [name]
            objects.delete(name)


def test_long_segments_sort_among_their_neighbours(tmp_path: Path) -> None:
    stem = "x" * 239
    # The first and the last lie in the folder that continues the stem, the one between them beside it.
    names = [stem, stem + "%1", stem + "b", stem + "bc", stem + "é1"]
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        for name in names:
            objects.put(name, b"")
        assert [info.name for info in objects.list()] == names
        for count, name in enumerate(names, start=1):
            assert [info.name for info in objects.list(after=name)] == names[count:]


def test_a_continuation_that_the_scheme_would_have_cut_elsewhere_is_no_object(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        planted = tmp_path / ("x" * 235 + "%+")
        planted.mkdir()
        (planted / "y").write_bytes(b"")
        assert list(objects.list()) == []
