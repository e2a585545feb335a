"""What is printed reaches people and pipes whole."""

from __future__ import annotations

from dgr_build import console


def test_a_table_on_a_pipe_keeps_names_whole(capsys):
    name = "0001-" + "long" * 30 + ".patch"
    console.table("stack", ("patch", "purpose"), [(name, "a purpose")])
    assert name in capsys.readouterr().out
