"""A real Debian root, as small as one gets: made twice from one lock without a network, and entered."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dgr_build.documents.environment_lock import load_lock
from dgr_build.documents.matrix import Environment, load_matrix
from dgr_build.lanes.environment import manage
from dgr_build.workspace import Workspace, remove

_NAME = "tiny"
_DEFINITION = Environment(
    kind="sysroot",
    summary="what Debian needs at least, and a shell that needs nothing",
    path=("/usr/bin", "/bin"),
    suite="bookworm",
    packages=("busybox-static",),
)
_CREATE = """
import json, sys
from pathlib import Path
from dgr_build.documents.matrix import Matrix
from dgr_build.lanes.environment import manage
from dgr_build.workspace import Workspace
folders = {name: Path(path) for name, path in json.loads(sys.argv[1]).items()}
made = manage.create(Workspace(**folders), Matrix.model_validate_json(sys.stdin.read()), sys.argv[2])
print(made.root)
"""
_PROBE = """
echo changed > "$1/file" && echo "wrote what is only read"
echo changed > /usr/bin/file && echo "wrote the root"
cat "$1/file" > "$2/copy"
cat /proc/net/dev
"""

pytestmark = pytest.mark.skipif(
    shutil.which("mmdebstrap") is None or shutil.which("bwrap") is None,
    reason="needs mmdebstrap and bubblewrap",
)


@pytest.fixture(scope="module")
def matrix(project_root):
    whole = load_matrix(project_root / "lanes" / "matrix.toml")
    return whole.model_copy(update={"environment": {**whole.environment, _NAME: _DEFINITION}})


@pytest.fixture(scope="module")
def clones(tmp_path_factory):
    """Two clones in unlike folders that share one cache."""
    base = tmp_path_factory.mktemp("environments")
    folders = [base / name for name in ("one", "a clöne")]
    made = [Workspace(project=folder, root=folder / ".dgr", cache=base / "cache") for folder in folders]
    yield made
    for folder in folders:
        remove(folder)


@pytest.fixture(scope="module")
def roots(clones, matrix):
    """The root of each clone, made from one lock at the same time, with the network cut."""
    one, other = clones
    manage.renew_lock(one, matrix, _NAME)
    other.environment_lock(_NAME).parent.mkdir(parents=True)
    shutil.copy(one.environment_lock(_NAME), other.environment_lock(_NAME))
    cut = ["unshare", "--net", "--"]
    if subprocess.run([*cut, "true"], capture_output=True, check=False).returncode != 0:
        cut = []  # the proxy that nobody answers as will have to do
    children = []
    for ws in clones:
        folders = json.dumps({name: str(getattr(ws, name)) for name in ("project", "root", "cache")})
        child = subprocess.Popen(
            [*cut, sys.executable, "-P", "-c", _CREATE, folders, _NAME],
            env={**os.environ, "http_proxy": "http://127.0.0.1:9"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        child.stdin.write(matrix.model_dump_json(by_alias=True))
        child.stdin.close()
        child.stdin = None
        children.append(child)
    said = [child.communicate() for child in children]
    assert [child.returncode for child in children] == [0, 0], "\n".join(error for _, error in said)
    return [Path(out.strip()) for out, _ in said]


def _content(root):
    """Every file and link of a root, by what it holds."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in (*names, *files):
            path = Path(folder, name)
            if path.is_symlink():
                found[path.relative_to(root)] = str(path.readlink())
            elif path.is_file():
                mode = oct(path.stat().st_mode)
                found[path.relative_to(root)] = mode, hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def test_a_root_made_twice_without_a_network_holds_the_same_bytes(roots, clones):
    first, second = (_content(root) for root in roots)
    assert len(first) > 1000
    assert {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)} == set()
    assert {ws.environment_lock(_NAME).read_bytes() for ws in clones} == {
        clones[0].environment_lock(_NAME).read_bytes()
    }
    assert roots[0].name == roots[1].name


def test_a_root_holds_just_the_locked_packages(roots, clones):
    status = (roots[0] / "var/lib/dpkg/status").read_text()
    lock = load_lock(clones[0].environment_lock(_NAME))
    installed = {line.partition(": ")[2] for line in status.splitlines() if line.startswith("Package: ")}
    assert installed == {file.package for file in lock.files}
    assert "busybox-static" in installed


def test_inside_there_is_no_network_and_nothing_to_write_but_what_was_handed_in(
    roots, clones, matrix, tmp_path
):
    read, write = tmp_path / "ein Ordner", tmp_path / "out"
    read.mkdir()
    write.mkdir()
    (read / "file").write_text("as it was\n")
    made = manage.enter(clones[1], matrix, _NAME)
    assert made.root == roots[1]
    assert made.lies(Path("/bin/busybox"))
    asked = ["/bin/busybox", "sh", "-c", _PROBE, "sh", read, write]
    done = subprocess.run(
        made.command(asked, read=(read,), write=(write,)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "wrote" not in done.stdout
    assert done.stderr.count("Read-only file system") == 2
    assert (read / "file").read_text() == (write / "copy").read_text() == "as it was\n"
    devices = [line.split(":")[0].strip() for line in done.stdout.splitlines() if ":" in line]
    assert devices in ([], ["lo"])
    assert not (roots[1] / "usr/bin/file").exists()


def test_with_the_network_asked_for_it_is_that_of_this_machine(roots, clones, matrix):
    made = manage.enter(clones[0], matrix, _NAME)
    shown = [
        subprocess.run(made.command(["/bin/busybox", "readlink", "/proc/self/ns/net"], network=network),
                       capture_output=True, text=True, check=True).stdout.strip()
        for network in (True, False)
    ]  # fmt: skip
    own = str(Path("/proc/self/ns/net").readlink())
    assert shown[0] == own
    assert shown[1] != own


def test_a_root_that_was_removed_is_gone_and_its_packages_are_not(roots, clones, matrix):
    ws = clones[0]
    assert manage.remove_made(ws, matrix, _NAME) == (roots[0],)
    assert list(ws.environments.iterdir()) == []
    assert all((ws.debs / file.file).is_file() for file in load_lock(ws.environment_lock(_NAME)).files)
