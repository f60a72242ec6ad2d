"""Settings: what is given where, what counts, and the sentence for each mistake."""

from pathlib import Path

import pytest

from waybill.config import (
    SETTINGS,
    Config,
    MailSettings,
    WebhookSettings,
    effective_values_of,
    find_unknown_variables,
    load,
    sqlite_path,
)
from waybill.errors import InputError


def write(folder: Path, text: str, name: str = "waybill.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def test_defaults_lie_in_the_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = load()
    data = tmp_path / "waybill-data"
    assert config.data == data
    assert config.store == f"sqlite:///{data}/waybill.db"
    assert config.index == f"sqlite:///{data}/waybill-index.db"
    assert config.objects == str(data / "objects")
    assert config.work.root == data / "work"
    assert (config.http.host, config.http.port, config.open_loopback) == ("127.0.0.1", 8700, False)
    assert set(config.origins.values()) == {"default"}
    assert not data.exists(), "reading settings makes nothing"


def test_the_command_line_wins_over_the_environment_over_the_file(tmp_path: Path) -> None:
    file = write(tmp_path, '[http]\nport = 1001\nhost = "127.0.0.2"\n[work]\nthreads = 9\n')
    env = {"WAYBILL_HTTP_PORT": "1002", "WAYBILL_WORK_THREADS": "10"}
    config = load(file, env, {"http.port": 1003})
    assert (config.http.port, config.work.threads, config.http.host) == (1003, 10, "127.0.0.2")
    assert config.origins["http.port"] == "command line"
    assert config.origins["work.threads"] == "WAYBILL_WORK_THREADS"
    assert config.origins["http.host"] == str(file)
    assert config.origins["store"] == "default"


def test_the_file_in_the_data_folder_is_read_and_another_can_be_named(tmp_path: Path) -> None:
    write(tmp_path / "data", "[http]\nport = 1001\n")
    other = write(tmp_path, "[http]\nport = 1002\n", "other.toml")
    env = {"WAYBILL_DATA": str(tmp_path / "data")}
    assert load(env=env).http.port == 1001
    assert load(env=env | {"WAYBILL_CONFIG": str(other)}).http.port == 1002
    assert load(other, env).http.port == 1002


def test_paths_in_the_file_are_relative_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = load(write(tmp_path, 'data = "here"\nobjects = "bytes"\nwork.root = "/scratch"\n'))
    assert config.data == tmp_path / "here"
    assert config.objects == str(tmp_path / "bytes")
    assert config.work.root == Path("/scratch")
    assert load(write(tmp_path, 'objects = "s3://bucket/prefix"\n')).objects == "s3://bucket/prefix"


def test_the_index_lies_beside_the_store(tmp_path: Path) -> None:
    def index(store: str, **more: str) -> str:
        return load(overrides={"data": tmp_path, "store": store, **more}).index

    assert index("postgresql://me@host/db") == "postgresql://me@host/db"
    assert index("sqlite:////srv/a%20b.sqlite") == "sqlite:////srv/a%20b-index.db"
    assert index("zookeeper://host:2181/waybill") == f"sqlite:///{tmp_path}/index.db"
    assert index("zookeeper://host:2181/waybill", index="postgresql://me@host/db") == "postgresql://me@host/db"


def test_relative_sqlite_urls_are_anchored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    config = load(write(tmp_path, 'store = "sqlite:///below/a%20b.db"\nindex = "sqlite:////abs/i.db"\n'))
    assert (config.store, config.index) == (f"sqlite:///{tmp_path}/below/a%20b.db", "sqlite:////abs/i.db")
    assert sqlite_path(config.store) == tmp_path / "below" / "a b.db"
    monkeypatch.chdir(tmp_path)
    assert load(env={"WAYBILL_STORE": "sqlite:///x.db"}).store == f"sqlite:///{tmp_path}/x.db"
    assert load(env={"WAYBILL_STORE": "sqlite://"}).store == "sqlite://"


def test_lists_and_tables(tmp_path: Path) -> None:
    text = 'applications = ["ingest"]\nwork.queues = ["maintenance"]\n[app.mail]\nhost = "x"\n'
    text += '[retention]\n"parcel.Delivered" = 30\nshipment.Delivered = 7.5\n'
    config = load(write(tmp_path, text))
    assert (config.applications, config.work.queues) == (("ingest",), ("maintenance",))
    assert config.retention == {"parcel.Delivered": 30.0, "shipment.Delivered": 7.5}
    assert config.app == {"mail": {"host": "x"}}
    env = {
        "WAYBILL_APPLICATIONS": "a, b",
        "WAYBILL_RETENTION": "parcel.Delivered=1,parcel.Returned=2",
        "WAYBILL_DATA": str(tmp_path / "x"),
    }
    config = load(env=env)
    assert (config.applications, config.retention) == (("a", "b"), {"parcel.Delivered": 1.0, "parcel.Returned": 2.0})


def test_a_folder_of_the_demonstration_remembers_it(tmp_path: Path) -> None:
    assert not load(overrides={"data": tmp_path}).demo
    (tmp_path / "demo").touch()
    assert load(overrides={"data": tmp_path}).demo
    assert not load(env={"WAYBILL_DEMO": "no"}, overrides={"data": tmp_path}).demo


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("colour = 1", "waybill.toml, line 1: there is no setting colour; there are data, store"),
        ("[http]\n# a comment\n\nprot = 1", "waybill.toml, line 4: there is no setting http.prot"),
        ("[http]\nport = 'many'", "line 2: http.port is 'many'; it must be a whole number from 0 to 65535."),
        ("[http]\nport = true", "http.port is True; it must be a whole number"),
        ("[http]\nport = 70000", "it must be a whole number from 0 to 65535"),
        ("http = 3", "http is a table: write [http]"),
        ("open_loopback = 'perhaps'", "open_loopback is 'perhaps'; it must be true or false."),
        ("store = ''", "store is ''; it must be a text that is not empty."),
        ("[work]\nttl = 0.1", "work.ttl is 0.1; it must be a number of seconds from 1 to 3600."),
        ("[log]\nlevel = 'loud'", 'log.level is \'loud\'; it must be "debug" or "info"'),
        ("[retention]\nparcel = 3", "retention is {'parcel': 3}; it must be a table of days by \"kind.State\""),
        ("[retention]\n'a.B' = -1", "it must be a table of days"),
        ("applications = 3", "applications is 3; it must be a list of names"),
        ("app = 3", "app must be tables, one for each application"),
        ("http.port = ", "waybill.toml is not TOML: "),
    ],
)
def test_each_mistake_in_the_file_is_a_sentence_that_says_what_is_right(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(InputError) as caught:
        load(write(tmp_path, text))
    assert sentence in str(caught.value)


def test_mistakes_elsewhere_are_sentences_too(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"the environment's WAYBILL_HTTP_PORT: http.port is 'x'; it must be a whole number"
    ):
        load(env={"WAYBILL_HTTP_PORT": "x"})
    with pytest.raises(InputError, match=r"the command line: work.threads is 0; it must be"):
        load(overrides={"work.threads": 0})
    with pytest.raises(InputError, match="There is no setting colour"):
        load(overrides={"colour": 1})
    with pytest.raises(
        InputError, match=r"missing.toml cannot be read: No such file or directory. Give the settings file"
    ):
        load(tmp_path / "missing.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8"):
        load(tmp_path / "binary.toml")
    write(tmp_path / "data", 'data = "../elsewhere"')
    with pytest.raises(InputError, match="lies in one data folder and names another"):
        load(overrides={"data": tmp_path / "data"})


def test_every_setting_is_shown_and_has_its_variable(tmp_path: Path) -> None:
    config: Config = load(overrides={"data": tmp_path, "store": "postgresql://me:secret@host/db"})
    shown = effective_values_of(config)
    assert list(shown) == [setting.name for setting in SETTINGS] == list(config.origins)
    assert "secret" not in str(shown)
    for setting in SETTINGS:
        assert setting.description.endswith("."), setting.name
    assert find_unknown_variables({"WAYBILL_STOER": "x", "WAYBILL_STORE": "x", "WAYBILL_TOKEN": "x", "PATH": "x"}) == [
        "WAYBILL_STOER"
    ]


def test_mail_and_webhooks_come_from_the_file_and_their_secrets_from_the_environment(tmp_path: Path) -> None:
    text = (
        '[mail]\nurl = "starttls://mail.example.org"\nsender = "waybill@example.org"\nuser = "me"\n'
        '[webhooks.ours]\nurl = "https://example.org/hook?token=zzz"\ntypes = ["org.waybill.*"]\nsecret = "hush"\n'
        '[webhooks.theirs]\nurl = "http://127.0.0.1:9/"\n'
    )
    config = load(write(tmp_path, text), env={"WAYBILL_MAIL_PASSWORD": "sesame"})
    assert config.mail == MailSettings("starttls://mail.example.org", "waybill@example.org", "me", "sesame")
    assert config.webhooks == (
        WebhookSettings("ours", "https://example.org/hook?token=zzz", ("org.waybill.*",), "hush"),
        WebhookSettings("theirs", "http://127.0.0.1:9/"),
    )
    shown = effective_values_of(config)
    assert (shown["mail.password"], shown["mail.user"]) == ("***", "me")
    assert shown["webhooks"]["ours"] == {
        "url": "https://example.org/hook?token=***",
        "types": ["org.waybill.*"],
        "secret": "***",
    }
    assert shown["webhooks"]["theirs"]["secret"] == ""
    for words in (repr(config), str(shown)):
        assert "hush" not in words
        assert "sesame" not in words


def test_webhooks_can_come_whole_from_the_environment(tmp_path: Path) -> None:
    said = '{"ours": {"url": "https://example.org/hook", "secret": "hush"}}'
    config = load(env={"WAYBILL_WEBHOOKS": said}, overrides={"data": tmp_path})
    assert config.webhooks == (WebhookSettings("ours", "https://example.org/hook", ("*",), "hush"),)


@pytest.mark.parametrize(
    "text",
    [
        '[mail]\nurl = "http://mail.example.org"\n',
        '[mail]\nurl = "smtp://me:hush@mail.example.org"\n',
        '[mail]\nurl = "smtp://"\n',
        '[mail]\nurl = "smtp://mail.example.org:99999"\n',
        '[mail]\nsender = "nobody"\n',
        '[mail]\nsender = "a@b\\nBcc: c@d"\n',
        '[mail]\npassword = ["hush"]\n',
        '[webhooks.ours]\nsecret = "hush"\n',
        '[webhooks.ours]\nurl = "ftp://example.org"\nsecret = "hush"\n',
        '[webhooks.ours]\nurl = "https://me:hush@example.org"\n',
        '[webhooks.ours]\nurl = "https://example.org"\nkind = "hush"\n',
        '[webhooks.ours]\nurl = "https://example.org"\ntypes = "hush"\n',
        'webhooks = "hush"\n',
    ],
)
def test_mail_and_webhooks_that_cannot_be_used_are_refused_without_telling_secrets(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError) as refused:
        load(write(tmp_path, text))
    assert "line " in str(refused.value)
    assert "hush" not in str(refused.value)


def test_a_byte_order_mark_at_the_beginning_of_the_file_is_no_mistake(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "waybill.toml"
    path.write_bytes(b"\xef\xbb\xbfdemo = true\n[work]\nthreads = 3\n")
    config = load(path)
    assert (config.demo, config.work.threads) == (True, 3)
    path.write_bytes(b"\xef\xbb\xbfdem = true\n")
    with pytest.raises(InputError, match="line 1: there is no setting dem;"):
        load(path)
