"""How the log is written."""

import logging

from waybill.cli.logs import Text


def test_a_line_of_the_log_is_one_line_that_can_be_printed() -> None:
    record = logging.makeLogRecord({"msg": "broken: %s", "args": ("a\nb\0c\x1b[31m\ud800 é",), "levelname": "INFO", "id": "x\ny"})
    line = Text().format(record)
    assert line.endswith(r"info    broken: a\nb\x00c\x1b[31m\ud800 é  id=x\ny")
