"""The generated code of the wire contract: made once, under the digest of what it was made from."""

import shutil
import subprocess
import sys

import pytest

from dgr_build.errors import BuildError
from dgr_build.route import wire
from dgr_build.workspace import Workspace

_PROTO = "native/proto/dgr/shard/v1/shard.proto"
_USE = "from dgr_build.route import wire; print(wire.pb2.Executed(sequence=7).sequence, wire.pb2.__file__)"


@pytest.fixture
def ws(tmp_path, project_root):
    proto = tmp_path / "project" / _PROTO
    proto.parent.mkdir(parents=True)
    shutil.copy(project_root / _PROTO, proto)
    return Workspace(project=tmp_path / "project", root=tmp_path / "made", cache=tmp_path / "cache")


def test_code_is_made_once(ws, monkeypatch):
    first = wire.generated(ws)
    assert sorted(path.name for path in first.rglob("*.py")) == ["shard_pb2.py", "shard_pb2_grpc.py"]
    monkeypatch.setattr(wire, "_generate", lambda *_: pytest.fail("made again"))
    assert wire.generated(ws) == first
    assert [path for path in first.parent.iterdir() if path != first] == []


def test_another_contract_gets_another_folder_and_the_old_one_stays(ws):
    first = wire.generated(ws)
    with (ws.project / _PROTO).open("a") as proto:
        proto.write("message Another {}\n")
    second = wire.generated(ws)
    assert first != second
    assert "nother" in next(second.rglob("shard_pb2.py")).read_text()
    assert next(first.rglob("shard_pb2.py")).is_file()


def test_code_of_another_generator_is_not_taken(ws, monkeypatch):
    first = wire.generated(ws)
    monkeypatch.setattr(wire, "version", lambda _: "0.0.1")
    assert wire.generated(ws) != first


def test_a_contract_that_does_not_compile_leaves_nothing_behind(ws):
    (ws.project / _PROTO).write_text("message {")
    with pytest.raises(BuildError) as caught:
        wire.generated(ws)
    assert str(ws.project / _PROTO) in caught.value.remedy
    assert list((ws.root / "proto").iterdir()) == []


def test_processes_that_need_the_code_at_the_same_time_share_it(isolated):
    users = [
        subprocess.Popen(
            [sys.executable, "-c", _USE], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    said = [user.communicate(timeout=60) for user in users]
    assert [user.returncode for user in users] == [0, 0], said
    assert said[0][0] == said[1][0]
    assert said[0][0].startswith("7 ")
    assert len(list((isolated / "workspace" / "proto").iterdir())) == 1


def test_the_module_has_no_other_lazy_names():
    with pytest.raises(AttributeError):
        wire.pb3  # noqa: B018 - the access is the test
