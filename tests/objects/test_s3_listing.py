"""Pages of a listing on servers of both orders, whatever `start-after` means to them; and a body that ends too
early.
"""

from collections.abc import Iterator
from typing import Any, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waybill.objects import ObjectStoreUnavailable
from waybill.objects.s3_bucket import S3Bucket, _read_chunks, list_keys


class Listed:
    """A bucket that can only list: by bytes, or folder by folder, with or without what lies below the start."""

    def __init__(self, keys: set[str], order: str, *, skips_below: bool) -> None:
        self.order = order
        self.keys = sorted(keys, key=self.sort_key)
        self.skips_below = skips_below

    def sort_key(self, key: str) -> Any:
        return key.encode() if self.order == "bytes" else key.encode().split(b"/")

    def list(self, folder: str, after: str | None = None) -> Iterator[dict[str, str]]:
        for key in self.keys:
            if folder and not key.startswith(folder + "/"):
                continue
            if after and (
                self.sort_key(key) <= self.sort_key(after) or (self.skips_below and key.startswith(after + "/"))
            ):
                continue
            yield {"path": key}


key = st.lists(st.sampled_from(["a", "a!", "ab", "b", "é"]), min_size=1, max_size=4).map("/".join)


@given(st.sets(key, max_size=15), key, st.just("") | key, st.sampled_from(["bytes", "tree skipping", "tree"]))
def test_nothing_is_left_out_and_nothing_comes_twice(keys: set[str], after: str, folder: str, kind: str) -> None:
    order: Literal["bytes", "tree"] = "bytes" if kind == "bytes" else "tree"
    server = Listed(keys, order, skips_below=kind == "tree skipping")
    found = [meta["path"] for meta in list_keys(cast(S3Bucket, server), folder, after, order)]
    below = [each for each in server.keys if not folder or each.startswith(folder + "/")]
    assert found == [each for each in below if server.sort_key(each) > server.sort_key(after)]
    assert [meta["path"] for meta in list_keys(cast(S3Bucket, server), folder, "", order)] == below


def test_a_body_that_ends_too_early_is_an_error() -> None:
    class Short:
        range = (0, 10)

        def stream(self, min_chunk_size: int) -> Iterator[bytes]:
            yield b"12345"

    with pytest.raises(ObjectStoreUnavailable, match="5 bytes of 'a' instead of 10"):
        list(_read_chunks("a", cast(Any, Short())))
