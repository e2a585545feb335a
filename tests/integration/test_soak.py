"""A short soak of real workers, and one whose answers are not the model's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dgr_build.documents.base import load_json
from dgr_build.documents.evidence import Record
from dgr_build.errors import CheckError
from dgr_build.flows import soak as story
from dgr_build.flows.soak import SoakRequest, require_sound, soak
from dgr_build.flows.soak_record import record_soak

_SHORT = SoakRequest(recipe="llama-tiny-2stage", tokens=400, faults=3, sessions=3, seed=7)


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(story, "_LONGEST_STOP_S", 1.0)


def test_sessions_outlive_stages_that_are_killed_and_stopped(built_cpu_lane, project_workspace):
    soaked = soak(project_workspace, _SHORT)
    require_sound(soaked)
    assert {fault.kind for fault in soaked.faults} == {"kill", "stop"}
    tally = soaked.tally
    assert tally.tokens >= _SHORT.tokens
    assert tally.prefills > tally.generations  # some were prefilled again in their middle
    record = load_json(record_soak(project_workspace, _SHORT, soaked, publish=False), Record)
    assert record.passes
    assert record.digests.worker_sha256 == built_cpu_lane.sha256


def test_tokens_that_are_not_the_models_are_found(built_cpu_lane, project_workspace, monkeypatch):
    honest = story._known

    def lying(*arguments):
        return [
            replace(known, tokens=tuple((token + 1) % 3 for token in known.tokens))
            for known in honest(*arguments)
        ]

    monkeypatch.setattr(story, "_known", lying)
    with pytest.raises(CheckError, match="faults of ours"):
        require_sound(soak(project_workspace, replace(_SHORT, tokens=30, faults=0)))
