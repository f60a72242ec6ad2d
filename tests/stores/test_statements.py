"""Named statements out of .sql files."""

import pytest

from waybill.sql_statements import parse_statements

TEXT = """-- What this file is.
-- name: first
-- why
select 1
  from dual;

-- name: second
delete from t where a = ';'
"""


def test_statements_are_found_by_their_names() -> None:
    found = parse_statements(TEXT)
    assert list(found) == ["first", "second"]
    assert found["first"] == "-- why\nselect 1\n  from dual"
    assert found["second"] == "delete from t where a = ';'"


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"x\.sql has two statements named a"):
        parse_statements("-- name: a\nselect 1\n-- name: a\nselect 2", "x.sql")


def test_a_name_without_a_statement_is_refused() -> None:
    with pytest.raises(ValueError, match="gives no statement"):
        parse_statements("-- name: a\n-- only a comment\n-- name: b\nselect 2")
