"""EZID's client against a server that speaks its protocol: what is sent, what is tried again, and that no request
mints twice.
"""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apps.ingest.ezid_server import EzidServer
from tests.servers.ports import free_port
from waybill.apps.ingest.identifiers.ezid import EzidClient, EzidMetadata, _parse_answer, target_url_of
from waybill.transfer.address_policy import TransferError

ARK = "ark:/99999/fk42z13f2"
SHOULDER = "ark:/99999/fk4"
HUNT = EzidMetadata(
    "Seneca, Tracy", "Hunt: 100%\nbig", "", (ARK, "loc 1"), "demo", target_url_of("https://example.org", ARK), "merritt"
)


@pytest.fixture
def server() -> Iterator[EzidServer]:
    with EzidServer() as running:
        yield running


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def ezid(server: EzidServer, pauses: list[float]) -> Iterator[EzidClient]:
    with EzidClient(server.url, "apitest", "secret", pause=pauses.append) as client:
        yield client


def test_what_is_sent(server: EzidServer, ezid: EzidClient) -> None:
    assert ezid.create(ARK, "job 7", HUNT) == ARK
    assert server.asked == [
        (
            "PUT",
            "/id/ark:/99999/fk42z13f2",
            "waybill.request: job 7\n"
            "erc: who: Seneca, Tracy%0Awhat: Hunt%3A 100%25 big%0Awhen: (:unas)%0Awhere: ark%3A/99999/fk42z13f2%0Awhere: loc 1%0A\n"
            "mrt.creator: demo\n"
            "_target: https://example.org/m/ark%253A%252F99999%252Ffk42z13f2\n"
            "_owner: merritt\n",
        )
    ]
    assert (
        server.known[ARK]["erc"]
        == f"who: Seneca, Tracy\nwhat: Hunt: 100% big\nwhen: (:unas)\nwhere: {ARK}\nwhere: loc 1\n"
    )
    assert server.known[ARK]["_target"] == "https://example.org/m/ark%3A%2F99999%2Ffk42z13f2"


def test_an_object_for_administrators_is_reserved(server: EzidServer, ezid: EzidClient) -> None:
    ezid.create(ARK, "job 7", EzidMetadata(reserved=True))
    assert (server.known[ARK]["_status"], server.known[ARK]["_export"]) == ("reserved", "no")


@pytest.mark.parametrize(
    "does", [["lose"], ["cut"], ["lose", "lose"], ["status 503 error: busy"], ["status 502 <html>", "cut"]]
)
def test_creating_is_repeated_and_stays_one(
    server: EzidServer, ezid: EzidClient, pauses: list[float], does: list[str]
) -> None:
    server.does = list(does)
    assert ezid.create(ARK, "job 7", HUNT) == ARK
    assert list(server.known) == [ARK]
    assert pauses == [5.0, 15.0][: len(does)]
    assert ezid.create(ARK, "job 7", HUNT) == ARK


def test_an_ark_of_another_request_is_left_alone(server: EzidServer, ezid: EzidClient) -> None:
    ezid.create(ARK, "job 7", HUNT)
    before = dict(server.known[ARK])
    with pytest.raises(TransferError, match="another must be drawn"):
        ezid.create(ARK, "job 8", EzidMetadata(what="mine"))
    assert server.known[ARK] == before


def test_an_ark_from_elsewhere_is_left_alone(server: EzidServer, ezid: EzidClient) -> None:
    server.known[ARK] = {"erc": "who: somebody"}
    with pytest.raises(TransferError):
        ezid.create(ARK, "job 8", HUNT)
    assert server.known[ARK] == {"erc": "who: somebody"}


def test_minting(server: EzidServer, ezid: EzidClient) -> None:
    ark = ezid.mint(SHOULDER, "job 7", HUNT)
    assert server.minted == [ark]
    assert server.asked[0][:2] == ("POST", "/shoulder/ark:/99999/fk4")
    assert server.known[ark]["waybill.request"] == "job 7"


def test_minting_is_repeated_only_when_nothing_was_done(
    server: EzidServer, ezid: EzidClient, pauses: list[float]
) -> None:
    server.does = ["status 503 error: busy", "status 429 error: too many requests"]
    assert ezid.mint(SHOULDER, "job 7", HUNT) == server.minted[0]
    assert len(server.minted) == 1
    assert pauses == [5.0, 15.0]


@pytest.mark.parametrize(
    "does",
    [
        "lose",
        "cut",
        "status 502 <html>Bad gateway</html>",
        "status 201 ",
        "endless",
        "status 500 success: x",
        "status 500 error: x",
    ],
)
def test_minting_is_not_repeated_when_it_may_have_been_done(
    server: EzidServer, ezid: EzidClient, pauses: list[float], does: str
) -> None:
    server.does = [does]
    with pytest.raises(TransferError):
        ezid.mint(SHOULDER, "job 7", HUNT)
    assert len(server.asked) == 1
    assert pauses == []


@pytest.mark.parametrize("answer", ["success: ark:/88888/abc", "success: doi:10.1/x", "success: "])
def test_what_was_minted_must_be_an_ark_of_the_shoulder(server: EzidServer, ezid: EzidClient, answer: str) -> None:
    server.does = [f"status 201 {answer}"]
    with pytest.raises(TransferError):
        ezid.mint(SHOULDER, "job 7", HUNT)


def test_a_shadow_ark_is_cut_off(server: EzidServer, ezid: EzidClient) -> None:
    server.does = ["status 201 success: ark:/99999/fk4abc | ark:/b5060/fk4abc"]
    assert ezid.mint(SHOULDER, "job 7", HUNT) == "ark:/99999/fk4abc"


def test_an_update(server: EzidServer, ezid: EzidClient) -> None:
    server.known[ARK] = {"kept": "x"}
    ezid.update(ARK, HUNT)
    assert server.known[ARK]["kept"] == "x"
    assert server.known[ARK]["mrt.creator"] == "demo"
    assert [each[0] for each in server.asked] == ["POST"]


def test_an_update_of_what_ezid_does_not_know(server: EzidServer, ezid: EzidClient) -> None:
    server.does = ["ok", "lose"]
    ezid.update(ARK, HUNT)
    assert server.known[ARK]["mrt.creator"] == "demo"
    assert [each[:2] for each in server.asked[1:]] == [("PUT", f"/id/{ARK}?update_if_exists=yes")] * 2


def test_looking_up(server: EzidServer, ezid: EzidClient) -> None:
    assert ezid.look_up(ARK) is None
    server.known[ARK] = {"erc": "who: 100%\nwhat: b"}
    assert ezid.look_up(ARK) == [("erc", "who: 100%\nwhat: b")]


def test_a_wrong_password(server: EzidServer, pauses: list[float]) -> None:
    with EzidClient(server.url, "apitest", "wrong", pause=pauses.append) as ezid:
        with pytest.raises(TransferError, match="user name and password") as caught:
            ezid.create(ARK, "job 7", HUNT)
    assert pauses == []
    assert caught.value.code == "transfer-refused"
    assert "wrong" not in str(caught.value)


def test_what_is_forbidden_is_not_repeated(ezid: EzidClient, pauses: list[float]) -> None:
    with pytest.raises(TransferError, match="forbidden"):
        ezid.create("ark:/13030/abc", "job 7", HUNT)
    assert pauses == []


@pytest.mark.parametrize("does", ["cut", "status 500 error: internal server error", "status 302 moved", "endless"])
def test_it_gives_up_after_three_tries(server: EzidServer, ezid: EzidClient, pauses: list[float], does: str) -> None:
    server.does = [does] * 4
    with pytest.raises(TransferError, match="in 3 tries") as caught:
        ezid.create(ARK, "job 7", HUNT)
    assert caught.value.is_retryable
    assert len(server.asked) == 3
    assert pauses == [5.0, 15.0]


def test_a_silent_server_is_not_waited_for(server: EzidServer) -> None:
    server.does = ["hang"]
    with EzidClient(server.url, "apitest", "secret", pauses=(), timeout=0.2) as ezid, pytest.raises(TransferError):
        ezid.create(ARK, "job 7", HUNT)


def test_minting_is_repeated_when_there_is_no_connection(pauses: list[float]) -> None:
    with (
        EzidClient(f"http://127.0.0.1:{free_port()}", "apitest", "secret", pause=pauses.append) as ezid,
        pytest.raises(TransferError, match="no connection"),
    ):
        ezid.mint(SHOULDER, "job 7", HUNT)
    assert pauses == [5.0, 15.0]


@pytest.mark.parametrize("url", ["http://ezid.example.org", "ftp://x", "", "ezid.cdlib.org"])
def test_a_password_goes_over_tls_only(url: str) -> None:
    with pytest.raises(TransferError, match="https://"):
        EzidClient(url, "apitest", "secret")


def test_a_text_that_cannot_be_sent(ezid: EzidClient) -> None:
    with pytest.raises(TransferError, match="surrogate"):
        ezid.create(ARK, "job 7", EzidMetadata(what="\ud83d"))


@given(st.text(), st.text(), st.text())
def test_a_description_is_one_line_for_each_element(who: str, request: str, creator: str) -> None:
    for label, value in EzidMetadata(who=who, where=(request,), creator=creator).to_elements():
        assert label in ("erc", "mrt.creator")
        assert "\n" not in value
        assert "\r" not in value


@given(
    st.integers(100, 599),
    st.one_of(st.binary(), st.sampled_from([b"success:", b"error: x", b"success: a\nb: c", b"success"])),
)
def test_any_answer_is_understood_or_not(status: int, data: bytes) -> None:
    found = _parse_answer(status, data)
    assert found.outcome in ("success", "error", "")
    assert found.ok <= (200 <= status < 300)
