"""Whether a reference program may speak for the pinned source."""

import hashlib

import pytest

from dgr_build.errors import HostError
from dgr_build.flows.noise_floor import require_built_from
from dgr_build.lanes.stamp import Stamp, write_stamp

_TREE = "2" * 40


@pytest.fixture
def reference(tmp_path):
    """A reference program in a build folder, and what its stamp says."""
    program = tmp_path / "bin" / "dgr-reference"
    program.parent.mkdir()
    program.write_bytes(b"program")

    def make(*, tree=_TREE, overrides=None, content=b"program"):
        plan = {"source": {"base_tree": tree}, "overrides": overrides or {}}
        stamp = Stamp(project="/p", family="f" * 64, digest="d" * 64, plan=plan)
        sha256 = hashlib.sha256(content).hexdigest()
        write_stamp(tmp_path, stamp.model_copy(update={"program_sha256": sha256}))
        return program

    make.program = program
    return make


def test_a_reference_of_the_pinned_source_may_speak_for_it(reference):
    require_built_from(reference(), _TREE)


@pytest.mark.parametrize(
    "change", [{"tree": "3" * 40}, {"overrides": {"isa": "x86-64-v2"}}, {"content": b"other"}]
)
def test_a_reference_of_something_else_may_not(reference, change):
    with pytest.raises(HostError) as caught:
        require_built_from(reference(**change), _TREE)
    assert caught.value.remedy == "dgr-build lane cpu"


def test_a_reference_of_which_nothing_is_known_may_not(reference):
    with pytest.raises(HostError):
        require_built_from(reference.program, _TREE)
