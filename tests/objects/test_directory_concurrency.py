"""Many at once in one directory: threads, processes, and names that are objects and prefixes by turns; and a model
to compare with.
"""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tests.budget import Budget
from waybill.objects import DirectoryObjects, ObjectExists, ObjectNotFound, PreconditionFailed

NAMES = ["a", "a/b", "a/b/c", "a/c", "ab", "A", "a%", "é", "x/y/z", "x"]


def in_processes(count: int, work: Callable[[int], None]) -> list[int]:
    """Run in processes that begin together; their exit codes."""
    reader, writer = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(writer)
                os.read(reader, 1)  # until the parent closes its end
                work(number)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    os.close(reader)
    os.close(writer)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_no_swap_of_any_process_is_lost(tmp_path: Path) -> None:
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("count", b"0")

    def add(number: int) -> None:
        with DirectoryObjects(tmp_path, fsync=False) as mine:
            done = 0
            while done < 25:
                with mine.get("count") as body:
                    seen, etag = int(body.read()), body.info.etag
                try:
                    mine.put("count", str(seen + 1).encode(), if_match=etag)
                    done += 1
                except PreconditionFailed:
                    continue

    assert in_processes(4, add) == [0] * 4
    with DirectoryObjects(tmp_path, fsync=False) as objects, objects.get("count") as body:
        assert body.read() == b"100"


def test_one_of_many_processes_creates(tmp_path: Path) -> None:
    DirectoryObjects(tmp_path, fsync=False).close()

    def create(number: int) -> None:
        with DirectoryObjects(tmp_path, fsync=False) as mine:
            for turn in range(30):
                try:
                    mine.put(f"deep/{turn}/x", b"%d" % number, if_absent=True)
                    mine.put(f"won/{turn}/{number}", b"")
                except ObjectExists:
                    pass

    assert in_processes(4, create) == [0] * 4
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        for turn in range(30):
            (won,) = objects.list(f"won/{turn}")
            with objects.get(f"deep/{turn}/x") as body:
                assert body.read().decode() == won.name.rpartition("/")[2]


def test_objects_and_prefixes_by_turns(tmp_path: Path, budget: Budget) -> None:
    """Names come and go as files and as folders under each other's feet; every put is there, every error is one of
    ours.
    """
    names = ["a", "a/b", "a/b/c", "a/b/c/d"]
    unexpected: list[BaseException] = []
    with DirectoryObjects(tmp_path, fsync=False) as objects:
        objects.put("a/b/kept", b"all the time")

        def work(seed: int) -> None:
            dice = random.Random(seed)
            try:
                for _ in range(budget.pick(small=150, long=5_000)):
                    name = dice.choice(names)
                    verb = dice.randrange(4)
                    if verb == 0:
                        objects.put(name, name.encode())
                    elif verb == 1:
                        objects.delete(name)
                    elif verb == 2:
                        try:
                            with objects.get(name) as body:
                                assert body.read() == name.encode()
                        except ObjectNotFound:
                            pass
                    else:
                        assert "a/b/kept" in [info.name for info in objects.list()]
            except BaseException as error:  # noqa: BLE001 - looked at below
                unexpected.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert unexpected == []
        for name in names:
            objects.put(name, name.encode())
        assert {info.name for info in objects.list()} == {*names, "a/b/kept"}
        assert os.listdir(tmp_path / ".waybill/tmp") == []


class AgainstAModel(RuleBasedStateMachine):
    """A directory and a dict do the same."""

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.objects = DirectoryObjects(self.folder / os.urandom(6).hex(), fsync=False)
        self.model: dict[str, bytes] = {}

    name = st.sampled_from(NAMES)

    @rule(name=name, data=st.binary(max_size=20))
    def put(self, name: str, data: bytes) -> None:
        self.objects.put(name, data)
        self.model[name] = data

    @rule(name=name, data=st.binary(max_size=20))
    def create(self, name: str, data: bytes) -> None:
        if name in self.model:
            with pytest.raises(ObjectExists):
                self.objects.put(name, data, if_absent=True)
        else:
            self.objects.put(name, data, if_absent=True)
            self.model[name] = data

    @rule(name=name, other=name, data=st.binary(max_size=20))
    def swap(self, name: str, other: str, data: bytes) -> None:
        etag = self.objects.head(other).etag if other in self.model else "none"
        if name in self.model and self.model[name] == self.model.get(other):
            self.objects.put(name, data, if_match=etag)
            self.model[name] = data
        else:
            with pytest.raises(PreconditionFailed):
                self.objects.put(name, data, if_match=etag)

    @rule(name=name)
    def delete(self, name: str) -> None:
        assert self.objects.delete(name) == (self.model.pop(name, None) is not None)

    @rule(source=name, other=name)
    def copy(self, source: str, other: str) -> None:
        if source in self.model:
            self.objects.copy(source, other)
            self.model[other] = self.model[source]
        else:
            with pytest.raises(ObjectNotFound):
                self.objects.copy(source, other)

    @rule(name=name, data=st.binary(min_size=1, max_size=20))
    def upload(self, name: str, data: bytes) -> None:
        with self.objects.upload(name) as upload:
            upload.put_part(1, data)
            upload.complete()
        self.model[name] = data

    @rule()
    def sweep(self) -> None:
        self.objects.sweep(older_than=-60)

    @invariant()
    def agree(self) -> None:
        listed = [info.name for info in self.objects.list()]
        assert listed == sorted(self.model, key=str.encode)
        for name, data in self.model.items():
            with self.objects.get(name) as body:
                assert body.read() == data
        for prefix in ("a", "a/b", "x/y"):
            assert [info.name for info in self.objects.list(prefix)] == [
                name for name in listed if name.startswith(prefix + "/")
            ]

    def teardown(self) -> None:
        self.objects.close()


def test_a_directory_is_a_dict_of_bytes(tmp_path: Path, budget: Budget) -> None:
    class Machine(AgainstAModel):
        folder = tmp_path

    steps = settings(max_examples=budget.pick(small=15, long=1_000), stateful_step_count=30, deadline=None)
    run_state_machine_as_test(Machine, settings=steps)
