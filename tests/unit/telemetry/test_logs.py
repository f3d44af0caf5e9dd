"""Logs are one JSON object a line, whatever clients put into them."""

import json
import logging
import sys

from moorage.telemetry.logs import JsonFormatter


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("moorage.test", logging.WARNING, "file.py", 1, message, arguments, None)


def test_a_record_is_one_line_of_json() -> None:
    line = JsonFormatter().format(record("name %s", 'a"\n\x00{"level": "critical"}'))
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["message"] == 'name a"\n\x00{"level": "critical"}'
    assert (entry["level"], entry["logger"]) == ("warning", "moorage.test")


def test_a_traceback_goes_with_it() -> None:
    item = record("failed")
    try:
        raise ValueError("inner")
    except ValueError:
        item.exc_info = sys.exc_info()
    assert "ValueError: inner" in json.loads(JsonFormatter().format(item))["exception"]
