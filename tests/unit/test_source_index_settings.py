from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from dgr_build.source.index_settings import combine, pip_settings

if TYPE_CHECKING:
    from pathlib import Path

_USUAL = "https://index.example/simple"
_LISTING = """\
:env:.find-links='/ignored'
global.extra-index-url='file:///a/simple https://b.example/simple'
global.find-links='/links'
global.index-url='https://main.example/simple'
global.timeout='7'
install.find-links='/other links.html'
broken line
freeze.find-links='/not-for-us'
"""


def test_command_sections_win_over_global_and_the_environment_over_both() -> None:
    found = combine(_LISTING, {"PIP_EXTRA_INDEX_URL": "https://c.example/simple"}, _USUAL)
    assert found.indexes == ("https://main.example/simple", "https://c.example/simple")
    assert found.find_links == ("/other", "links.html")


def test_usual_index_stands_in_where_none_is_set() -> None:
    assert combine("", {}, _USUAL).indexes == (_USUAL,)
    assert combine("", {"PIP_EXTRA_INDEX_URL": "https://c.example/s"}, _USUAL).indexes[0] == _USUAL


@pytest.mark.parametrize(
    ("value", "off"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
def test_no_index_leaves_only_the_links(value: str, off: bool) -> None:
    found = combine(_LISTING, {"PIP_NO_INDEX": value}, _USUAL)
    assert (found.indexes == ()) is off
    assert found.find_links


def test_offline_leaves_what_is_on_this_machine() -> None:
    environment = {"PIP_FIND_LINKS": "/links https://d.example/page file:///e", "PIP_CERT": "/cert"}
    found = combine(_LISTING, environment, _USUAL).local_only()
    assert found.indexes == ("file:///a/simple",)
    assert found.find_links == ("/links", "file:///e")


def test_home_folder_is_spelled_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somebody")
    assert combine("", {"PIP_FIND_LINKS": "~/links"}, _USUAL).find_links == ("/somebody/links",)


def test_pips_own_configuration_file_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "pip.conf"
    config.write_text("[global]\nindex-url = https://mine.example/simple\nfind-links =\n  /one\n  /two\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    found = pip_settings(_USUAL)
    assert found.indexes[0] == "https://mine.example/simple"
    assert found.find_links == ("/one", "/two")


def test_missing_pip_leaves_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    monkeypatch.setenv("PIP_FIND_LINKS", "/links")
    assert pip_settings(_USUAL).find_links == ("/links",)
