"""Putting a record into the tracked evidence folder, as data and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dgr_build.evidence.readme import render
from dgr_build.evidence.record import check_private
from dgr_build.workspace import write_atomic

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from dgr_build.documents.evidence import Record


def publish_page(folder: Path, record: Record, title: str, summary: str, private: Mapping[str, str]) -> None:
    """Write a record as `record.json` and `README.md`, each by rename.

    Args:
        folder: where they go; what lies there is replaced.
        record: what is published.
        title: of the page.
        summary: one line below it.
        private: folders of this machine, none of which may appear (see `evidence.record.public`).

    Raises:
        CheckError: the record names the machine or a folder of it.
    """
    check_private(record, private)
    write_atomic(folder / "record.json", (record.model_dump_json(indent=2) + "\n").encode())
    write_atomic(folder / "README.md", render(record, title, summary).encode())
