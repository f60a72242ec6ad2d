"""`waybill tokens`: page by page, and never a secret."""

from tests.cli.conftest import Waybill


def test_tokens_are_listed_page_by_page(waybill: Waybill) -> None:
    made = [waybill("tokens", "new", f"clerk {n}", "--role", "operator", "--json").json for n in range(5)]
    pages, further = [], None
    while True:
        page = waybill("tokens", "list", "--limit", 2, "--json", *(["--page-token", further] if further else [])).json
        assert len(page["tokens"]) <= 2
        pages.append(page["tokens"])
        if (further := page["next"]) is None:
            break
    assert [[token["name"] for token in page] for page in pages] == [
        ["clerk 0", "clerk 1"],
        ["clerk 2", "clerk 3"],
        ["clerk 4"],
    ]
    listed = [token for page in pages for token in page]
    assert [token["id"] for token in listed] == [token["id"] for token in made]
    assert {(token["role"], token["state"], frozenset(token)) for token in listed} == {
        ("operator", "Active", frozenset({"id", "name", "role", "scope", "user", "state", "created", "expires"}))
    }


def test_a_page_says_how_to_read_the_next(waybill: Waybill) -> None:
    for n in range(3):
        assert waybill("tokens", "new", f"clerk {n}").code == 0
    first = waybill("tokens", "--limit", 2)
    assert "clerk 1" in first.out
    assert "clerk 2" not in first.out
    further = first.err.partition("waybill tokens list --page-token ")[2].strip()
    second = waybill("tokens", "list", "--page-token", further)
    assert "clerk 2" in second.out
    assert "clerk 1" not in second.out
    assert "There are more" not in second.err


def test_a_page_of_another_list_is_refused(waybill: Waybill) -> None:
    for _ in range(2):
        assert waybill("submit", "shipment", "--document", 'order={"parcels": 1}').code == 0
    further = waybill("ls", "shipment", "--limit", 1, "--json").json["next"]
    refused = waybill("tokens", "list", "--page-token", further)
    assert refused.code == 2
    assert "belongs to another list" in refused.err
