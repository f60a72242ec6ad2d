"""The rules of OCFL 1.1 for a storage root, read from the specification and checked on plain folders; it shares no
code with the storage.

It knows what our storage writes and no more: versions without padding, a content folder named `content`, an inventory
in every version.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def find_broken_rules(root: Path) -> tuple[int, list[str]]:
    """How many objects there are below the root, and what is wrong."""
    said = [] if (root / "0=ocfl_1.1").read_bytes() == b"ocfl_1.1\n" else ["the root is not declared"]
    said += [f"{folder} is empty" for folder in root.rglob("*") if folder.is_dir() and not any(folder.iterdir())]
    objects = {
        file.relative_to(root).parts[:3]
        for file in root.rglob("*")
        if file.is_file() and len(file.relative_to(root).parts) > 3
    }
    objects -= {parts for parts in objects if parts[0] == "extensions"}
    loose = [file for file in root.rglob("*") if file.is_file() and 1 < len(file.relative_to(root).parts) <= 3]
    said += [f"{file} lies in no object" for file in loose if "extensions" not in file.parts]
    for parts in sorted(objects):
        said += [f"{'/'.join(parts)}: {words}" for words in _object(root.joinpath(*parts))]
    return len(objects), said


def _object(folder: Path) -> Iterator[str]:
    if (
        not (folder / "0=ocfl_object_1.1").is_file()
        or (folder / "0=ocfl_object_1.1").read_bytes() != b"ocfl_object_1.1\n"
    ):
        yield "not declared"
    if not (folder / "inventory.json").is_file():
        yield "no inventory"
        return
    inventory = json.loads((folder / "inventory.json").read_bytes())
    algorithm, count = inventory["digestAlgorithm"], int(inventory["head"][1:])
    versions = [f"v{n}" for n in range(1, count + 1)]
    if folder.name != hashlib.sha256(inventory["id"].encode()).hexdigest():
        yield "lies in the wrong place"
    if list(inventory["versions"]) != versions or inventory["type"] != "https://ocfl.io/1.1/spec/#inventory":
        yield "the inventory's versions or type are wrong"
    if sorted(entry.name for entry in folder.iterdir()) != sorted(
        ["0=ocfl_object_1.1", "inventory.json", f"inventory.json.{algorithm}", *versions]
    ):
        yield f"the object's root holds {sorted(entry.name for entry in folder.iterdir())}"
    for place in ("", *versions):
        yield from _sidecar(folder / place, algorithm)
    if (folder / versions[-1] / "inventory.json").read_bytes() != (folder / "inventory.json").read_bytes():
        yield "the newest version has another inventory"
    yield from _contents(folder, inventory, algorithm)
    yield from _states(folder, inventory, versions)


def _sidecar(folder: Path, algorithm: str) -> Iterator[str]:
    if not (folder / "inventory.json").is_file() or not (folder / f"inventory.json.{algorithm}").is_file():
        yield f"{folder.name} lacks its inventory or sidecar"
        return
    digest = hashlib.new(algorithm, (folder / "inventory.json").read_bytes()).hexdigest()
    if (folder / f"inventory.json.{algorithm}").read_text().split() != [digest, "inventory.json"]:
        yield f"{folder.name}: the sidecar has another digest"


def _contents(folder: Path, inventory: dict[str, Any], algorithm: str) -> Iterator[str]:
    files = {str(file.relative_to(folder)) for file in folder.glob("v*/**/*") if file.is_file()}
    there = {place for place in files if "/inventory.json" not in place}
    listed = {place: digest for digest, places in inventory["manifest"].items() for place in places}
    if there != set(listed):
        yield f"content that is missing or too much: {sorted(there ^ set(listed))}"
    blocks = {algorithm: inventory["manifest"], **inventory.get("fixity", {})}
    for kind, block in blocks.items():
        for digest, places in block.items():
            for place in set(places) & there:
                if hashlib.new(kind, (folder / place).read_bytes()).hexdigest() != digest:
                    yield f"{place} has another {kind}"


def _states(folder: Path, inventory: dict[str, Any], versions: list[str]) -> Iterator[str]:
    used = {digest for version in versions for digest in inventory["versions"][version]["state"]}
    if used != set(inventory["manifest"]):
        yield "digests that no version uses, or that no content has"
    for version in versions:
        block = inventory["versions"][version]
        if set(block) != {"created", "state", "message", "user"} or set(block["user"]) != {"name", "address"}:
            yield f"{version} is not described"
        paths = [path for found in block["state"].values() for path in found]
        folders = {"/".join(path.split("/")[:n]) for path in paths for n in range(1, path.count("/") + 1)}
        if len(paths) != len(set(paths)) or folders & set(paths):
            yield f"{version} has paths twice, or in each other's way"
        earlier = json.loads((folder / version / "inventory.json").read_bytes())
        if earlier["head"] != version or any(
            inventory["versions"][name] != words for name, words in earlier["versions"].items()
        ):
            yield f"{version} was written otherwise than it is told now"
