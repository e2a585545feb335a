"""Remembered answers: asked again exactly when a file or a fact has changed."""

import pytest

from dgr_build.lanes.remembered import remembered, state_of


@pytest.fixture
def database(tmp_path):
    file = tmp_path / "status"
    file.write_text("one")
    return file


@pytest.fixture
def ask(ws, database):
    """Ask a question whose answer counts how often it was made."""
    made = []

    def question(*facts):
        made.append(1)
        return remembered(ws, "answer", state_of([database], *facts), lambda: {"n": str(len(made))})

    return question


def test_the_same_state_is_answered_from_what_is_known(ask):
    assert ask()["n"] == ask()["n"] == "1"


def test_a_written_file_is_a_new_question(ask, database):
    ask()
    database.write_text("longer")
    assert ask()["n"] == "2"


def test_a_file_that_vanishes_is_a_new_question(ask, database):
    ask()
    database.unlink()
    assert ask()["n"] == "2"


def test_another_fact_is_a_new_question(ask):
    ask("g++ 12")
    assert ask("g++ 13")["n"] == "2"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"state": 1}', b'{"answer": {}}'])
def test_a_damaged_answer_is_asked_for_again(ws, ask, damage):
    ask()
    (ws.root / "remembered" / "answer.json").write_bytes(damage)
    assert ask()["n"] == "2"


def test_an_answer_that_cannot_be_had_is_not_remembered(ws):
    def fail():
        raise ValueError

    with pytest.raises(ValueError):
        remembered(ws, "answer", "s", fail)
    assert remembered(ws, "answer", "s", lambda: {"a": "b"}) == {"a": "b"}
