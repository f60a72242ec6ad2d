"""The lock, its end and the removal of originals, killed after each of their changes: the next run ends with the same."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.apps.archive.files.trees import USER, Cycle
from waybill.apps.archive.files import open_access, removal, remove_originals, unlock_files
from waybill.apps.archive.files.system_calls import rename_without_replacing

CHANGES = ("fchmod", "fchown", "chmod", "chown", "unlink", "rename", "rmdir", "link")


def run_and_die(work: Callable[[], object], after: int) -> bool:
    """Run in a process that is killed after so many of its calls that change something. Returns whether it lived."""
    child = os.fork()
    if child == 0:
        seen = 0

        def count(call):
            def counted(*args, **kwargs):
                nonlocal seen
                result = call(*args, **kwargs)
                seen += 1
                if seen == after:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return counted

        for name in CHANGES:
            setattr(os, name, count(getattr(os, name)))
        removal.rename_without_replacing = count(rename_without_replacing)  # type: ignore[attr-defined]
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code == 0


def make_small_tree(root: Path) -> dict[str, tuple[int, int, int]]:
    """Of a user; returns owner and mode of each."""
    (root / "a/b").mkdir(parents=True)
    (root / "a/one").write_text("one")
    (root / "a/b/two").write_text("two")
    os.link(root / "a/one", root / "a/b/again")
    (root / "a/link").symlink_to("one")
    for path in (root, *root.rglob("*")):
        os.lchown(path, USER.uid, USER.gid)
    (root / "a/one").chmod(0o4755)
    (root / "a").chmod(0o2775)
    return owners_and_modes(root)


def owners_and_modes(root: Path) -> dict[str, tuple[int, int, int]]:
    return {
        str(path.relative_to(root)): (path.lstat().st_uid, path.lstat().st_gid, path.lstat().st_mode)
        for path in (root, *root.rglob("*"))
    }


def test_a_lock_that_is_killed_anywhere_is_given_back_or_goes_on(place: Path) -> None:
    for number in range(1, 40):
        tree = place / f"tree-{number}"
        before = make_small_tree(tree)
        cycle = Cycle(open_access(None))
        cycle.list(tree)  # stored durably
        lived = run_and_die(cycle.lock, number)
        if number % 2:
            cycle.lock()
            cycle.pack()  # what is locked in the end is what is packed
            assert cycle.failures == []
        unlock_lived = run_and_die(lambda: unlock_files(cycle.file_set, cycle.found, cycle.failures.append), number)  # noqa: B023
        unlock_files(cycle.file_set, cycle.found, cycle.failures.append)
        assert cycle.failures == []
        assert owners_and_modes(tree) == before, number
        if lived and unlock_lived:
            assert number > 8
            return
    pytest.fail("it is killed every time")


@pytest.mark.parametrize("is_writable_above", [False, True], ids=["locked above", "writable above"])
def test_a_removal_that_is_killed_anywhere_is_finished_by_the_next(place: Path, is_writable_above: bool) -> None:
    for number in range(1, 40):
        root = place / f"root-{number}"
        root.mkdir()
        make_small_tree(root / "tree")
        (root / "other").write_text("not ours")
        (root / "single").write_text("single")
        if is_writable_above:
            root.chmod(0o777)
        cycle = Cycle(open_access(None))
        cycle.put(root / "tree", root / "single")
        lived = run_and_die(
            lambda: remove_originals(cycle.file_set, cycle.locked, cycle.failures.append),  # noqa: B023
            number,
        )
        counts = remove_originals(cycle.file_set, cycle.locked, cycle.failures.append)
        assert (counts.stayed, cycle.failures) == (0, []), number
        assert [path.name for path in root.iterdir()] == ["other"]
        if lived:
            assert number > 6
            return
    pytest.fail("it is killed every time")
