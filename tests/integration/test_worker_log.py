"""The log of a real worker: every line one event, as JSON, and nothing private in it."""

from __future__ import annotations

import json
import signal
from datetime import datetime

import pytest


def _events(worker):
    return [json.loads(line) for line in worker.log.read_text().splitlines()]


def test_every_line_of_a_worker_is_an_event_and_none_tells_what_is_private(start_worker, tiny, on_the_wire):
    head = start_worker(tiny(), 0, 21, log_format="json", log_level="debug").ready()
    last = start_worker(tiny(), 21, 43, log_format="json", log_level="debug").ready()
    ids = on_the_wire.prompt(8)
    with on_the_wire.Session([head, last]) as session:
        session.run(ids)
        secret, name = session.key, session.name
    with pytest.raises(on_the_wire.Refused):
        on_the_wire.ask(head.stub.OpenSession, session.open_request(1))  # what is meant for the other stage
    for worker in (head, last):
        worker.child.signal(signal.SIGTERM)
        assert worker.child.wait(20) == 0
    told = _events(head)
    for event in told:
        at = datetime.fromisoformat(event["time"])
        assert at.utcoffset().total_seconds() == 0
        assert event["level"] in {"debug", "info", "warning", "error"}
    by_name = {event["event"]: event for event in told}
    assert [event["event"] for event in told][:3] == ["start", "loaded", "listening"]
    assert [event["event"] for event in told][-2:] == ["draining", "end"]
    assert by_name["start"]["lane_digest"] == head.about.build.lane_digest
    assert by_name["loaded"]["bytes"] == head.about.own_tensor_bytes
    assert (by_name["loaded"]["first"], by_name["loaded"]["last"]) == (0, 21)
    assert by_name["loaded"]["seconds"] > 0
    assert head.address.endswith(f":{by_name['listening']['port']}")
    assert by_name["session_opened"]["session"] == name
    assert by_name["session_opened"]["next"] == last.address
    assert by_name["next_stage_connected"]["epoch"] == by_name["session_opened"]["epoch"] == 1
    assert by_name["session_closed"]["position"] == 8
    assert by_name["session_refused"]["peer"].startswith("ipv4:127.0.0.1:")
    assert by_name["end"]["exit_code"] == 0
    whole = head.log.read_text() + last.log.read_text()
    assert secret.hex() not in whole
    assert str(list(ids)) not in whole
    assert "token_ids" not in whole
