"""Typed documents: declared with a machine, read from a record, written by steps, actions and new records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from waybill import rules
from waybill.machine import STAY, Document, Machine, MachineError, action, end, rest, work
from waybill.record import Change, DocumentError, DocumentStruct, Record, RecordDocuments, Store
from waybill.rules import Machines
from waybill.step import Done, New, Outcome, Wait


class Label(DocumentStruct, frozen=True):
    address: str
    stamps: tuple[int, ...] = ()


class Weight(DocumentStruct, frozen=True):
    grams: int


class Form(msgspec.Struct, frozen=True):
    """What another service writes: a number, or a number in quotes; its other fields are kept."""

    count: int
    others: dict[str, Any]

    @classmethod
    def from_json(cls, raw: bytes) -> Form:
        body = msgspec.json.decode(raw)
        return cls(int(body["Count"]), {name: value for name, value in body.items() if name != "Count"})

    def to_json(self) -> dict[str, Any]:
        return {"Count": str(self.count), **self.others}


class Stranger(DocumentStruct, frozen=True):
    name: str


def _upgrade_weight(fields: dict[str, Any]) -> dict[str, Any]:
    return {"grams": fields.pop("kilos") * 1000, **fields}


PARCEL = Machine(
    name="posted",
    plural="posted",
    prefix="pst",
    description="One parcel.",
    states=(
        work("Packing", to="Sent", description="Box it."),
        rest("Failed", description="Gave up.", settled=True),
        end("Sent", description="Gone."),
    ),
    actions=(
        action("drop", "Failed", "Sent", "Give up."),
        action("readdress", "Failed", STAY, "Other address.", writes=lambda record, args: (Label(args["to"]),)),
    ),
    documents=(
        Document("label", Label, "service", "Where to."),
        Document("weight", Weight, "step", "How heavy.", v=3, upgrade=_upgrade_weight),
        Document("form", Form, "step", "The customs form.", v=None, parse=Form.from_json, render=Form.to_json),
        Document("note", None, "step", "Any JSON."),
    ),
)
MACHINES = Machines.from_machines((PARCEL,))


def parcel(state: str = "Packing", **raw: bytes) -> Record:
    return Record("posted", "1", state, session="s", documents=RecordDocuments(raw))


def apply(record: Record, outcome: Outcome) -> Change:
    return rules.apply_outcome(PARCEL, record, outcome)


def test_a_document_is_read_as_its_type_and_decoded_once() -> None:
    record = parcel(label=b'{"v":1,"address":"Quay 1","stamps":[3]}')
    label = record.document(Label)
    assert label == Label("Quay 1", (3,))
    assert record.document(Label) is label
    assert msgspec.structs.replace(record, state="Sent").document(Label) is label
    assert record.find_document(Weight) is None


def test_a_document_is_written_with_its_version_and_removed_by_its_type() -> None:
    record = parcel(note=b"1", weight=b'{"v":3,"grams":1}')
    change = apply(record, Done((Weight(5),)))
    assert change.documents == {"weight": b'{"v":3,"grams":5}'}
    assert apply(record, Wait(1, documents=(Weight(7),))).documents == {"weight": b'{"v":3,"grams":7}'}
    assert apply(record, Done(remove=(Weight, Form))).documents == {"weight": None}  # it has no form
    new = rules.create(MACHINES, New("posted", (Label("Quay 1"),)))
    assert new.documents == {"label": b'{"v":1,"address":"Quay 1"}'}
    acted = rules.act(PARCEL, parcel("Failed"), "readdress", store=_NO_STORE, args={"to": "Quay 2"})
    assert acted.documents == {"label": b'{"v":1,"address":"Quay 2"}'}


_NO_STORE: Store = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("raw", "grams"),
    [
        (b'{"v":3,"grams":5}', 5),
        (b'{"grams":5,"v":3}', 5),
        (b' { "v" : 3, "grams" : 5 }', 5),
        (b'{"grams":5}', 5),  # written by hand, without a version
        (b'{"v":2,"kilos":2}', 2000),
    ],
)
def test_B15_a_document_is_read_in_its_version_and_the_one_before(raw: bytes, grams: int) -> None:
    assert parcel(weight=raw).document(Weight) == Weight(grams)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b'{"v":4,"grams":5}', "of version 4, and this release reads 2 and 3"),
        (b'{"v":1,"grams":5}', "of version 1"),
        (b'{"v":30,"grams":5}', "of version 30"),
        (b'{"v":3}', "missing required field `grams`"),
        (b'{"v":3,"grams":"5"}', "Expected `int`, got `str`"),
        (b'{"v":3,"grams":5,"feathers":1}', "unknown field `feathers`"),
        (b'{"v":3,"gra', "truncated"),
        (b"[]", "Expected `object`"),
        (b"null", "Expected `object`"),
        (b'{"v":3,"grams":"\xff"}', "Expected `int`, got `str`"),
        (b'{"v":3,"\xff":1}', "Invalid UTF-8|invalid start byte"),
    ],
)
def test_a_damaged_document_is_a_permanent_error_that_names_it(raw: bytes, why: str) -> None:
    record = parcel(weight=raw)
    with pytest.raises(DocumentError, match=why) as raised:
        record.find_document(Weight)
    assert "The document weight of posted 1 cannot be read" in str(raised.value)
    failed = rules.apply_outcome(PARCEL, record, raised.value).after
    assert failed is not None
    assert failed.state == "Failed"
    assert failed.message == str(raised.value)


def test_a_missing_document_is_a_permanent_error_that_names_it() -> None:
    with pytest.raises(DocumentError, match=r"posted 1 has no document weight.*waybill show posted 1"):
        parcel().document(Weight)


@pytest.mark.parametrize("raw", [b'{"v":4,"grams":5,"feathers":1}', b'{"grams":5,"v":4}'])
@pytest.mark.parametrize(
    "outcome", [Done((Weight(1),)), Wait(documents={"weight": {"grams": 1}}), Done(remove=(Weight,))]
)
def test_a_document_of_a_newer_version_is_not_overwritten(raw: bytes, outcome: Outcome) -> None:
    change = apply(parcel(weight=raw), outcome)
    assert change.documents == {}
    assert change.after is not None
    assert change.after.state == "Failed"
    assert "of a newer version than 3" in change.after.message


@pytest.mark.parametrize("raw", [b'{"v":2,"kilos":5}', b'{"v":3,"gra', b"[]"])
def test_an_older_or_damaged_document_is_overwritten(raw: bytes) -> None:
    assert apply(parcel(weight=raw), Done((Weight(1),))).documents == {"weight": b'{"v":3,"grams":1}'}


def test_a_foreign_format_is_parsed_and_rendered_and_keeps_what_it_does_not_know() -> None:
    record = parcel(form=b'{"Count":"3","Colour":"red"}')
    form = record.document(Form)
    assert form.count == 3
    written = apply(record, Done((msgspec.structs.replace(form, count=4),))).documents
    assert written == {"form": b'{"Count":"4","Colour":"red"}'}
    for damaged in (b"{}", b'{"Count":"x"}', b"[]", b"4"):
        with pytest.raises(DocumentError, match="The document form of posted 1 cannot be read"):
            parcel(form=damaged).document(Form)


@pytest.mark.parametrize(
    ("documents", "why"),
    [
        ((Stranger("x"),), "declares no document of the type Stranger; it has Label, Weight, Form"),
        ((Label("x"),), "label of posted is written by its service, not by a step"),
        ({"weight": {"grams": "heavy"}}, "The document weight is not what a posted needs: Expected `int`, got `str`"),
        ({"weight": {"grams": 1, "feathers": 2}}, "unknown field `feathers`"),
        ({"colour": {}}, "declares no document colour"),
    ],
)
def test_a_step_writes_only_what_is_declared(documents: Any, why: str) -> None:
    change = apply(parcel(), Done(documents))
    assert change.after is not None
    assert change.after.state == "Failed"
    assert why in change.after.message


def test_documents_by_name_are_checked_and_written_as_they_came() -> None:
    new = rules.create(MACHINES, New("posted", {"label": {"stamps": [], "address": "Quay 1"}, "note": [1]}))
    assert new.documents == {"label": b'{"v":1,"stamps":[],"address":"Quay 1"}', "note": b"[1]"}
    foreign = {"form": {"Count": 3, "Colour": "red"}}
    assert apply(parcel(), Done(foreign)).documents == {"form": b'{"Count":3,"Colour":"red"}'}
    assert apply(parcel(note=b"1"), Done({"note": None})).documents == {"note": None}
    bad: list[Mapping[str, Any]] = [{"label": {"address": 5}}, {"label": []}, {"label": {"v": 9, "address": ""}}]
    for documents in bad:
        with pytest.raises(MachineError, match="The document label is not what a posted needs"):
            rules.create(MACHINES, New("posted", documents))


def test_a_type_is_the_type_of_one_document() -> None:
    Document("label", Label, "step", "The same document in another machine.")
    with pytest.raises(TypeError, match="Label is the type of the document label and cannot be that of sticker"):
        Document("sticker", Label, "step", "")
    with pytest.raises(TypeError, match="No machine declares a document of the type Stranger"):
        parcel().find_document(Stranger)


def test_a_number_that_json_does_not_have_is_refused() -> None:
    class Ratio(DocumentStruct, frozen=True):
        value: float

    with pytest.raises(ValueError, match="JSON has no number nan"):
        Document("ratio", Ratio, "step", "").encode(Ratio(float("nan")))
