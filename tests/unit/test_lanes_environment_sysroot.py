"""Debian roots with a program in mmdebstrap's place: what it is asked, and what is made of its answers."""

import shutil
import signal
import subprocess
import sys
import textwrap
import time
from urllib.parse import unquote

import pytest

from dgr_build.documents.environment_lock import load_lock
from dgr_build.documents.matrix import Environment, load_matrix
from dgr_build.errors import CheckError, HostError, ProofError, UsageError
from dgr_build.flows.environments import environment_reach
from dgr_build.lanes.environment import manage, sysroot
from dgr_build.lanes.environment.state import state, states

# Simulates from `chosen`, downloads `deb` files from `mirror`, makes a root of whatever its repository lists.
_MMDEBSTRAP = """
import os, re, subprocess, sys, tarfile, time
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote
world = Path(__file__).parent / "world"
words = sys.argv[1:]
with (world / "asked").open("a") as file:
    file.write("\\0".join(words) + "\\n")
while (world / "hold").exists():
    (world / "held").touch()
    time.sleep(0.02)
if (world / "fails").exists():
    print((world / "fails").read_text())
    sys.exit(25)
if "--simulate" in words:
    print("Reading package lists...\\n" + (world / "chosen").read_text())
elif "--format=null" in words:
    for number, word in enumerate(word for word in words if word.startswith("--include=")):
        package, _, version = word.partition("=")[2].partition("=")
        print(f"Get:{number} mirror {package} {version}", flush=True)
        for deb in (world / "mirror").glob(f"{package}_{version.replace(':', '%3a')}_*.deb"):
            Path(os.environ["DGR_DEBS"], deb.name).write_bytes(deb.read_bytes())
else:
    archive, source = words[-2:]
    repository = Path(unquote(re.search(r"copy://(\\S+)", source)[1]))
    listed = (repository / "Packages").read_text() + (world / "more").read_text()
    status = re.sub(r"^(?:Filename|Size|SHA256):.*\\n", "", listed, flags=re.MULTILINE)
    with tarfile.open(archive, "w") as tar:
        files = {"var/lib/dpkg/status": status, "usr/bin/tool": "made\\n", "etc/apt/sources.list": source}
        for name, content in files.items():
            member = tarfile.TarInfo("./" + name)
            member.size = len(content.encode())
            tar.addfile(member, BytesIO(content.encode()))
        device = tarfile.TarInfo("./dev/null")
        tar.addfile(device)
"""
_FIELDS = '#!/bin/sh\n[ "$1" = --field ] && cat "$2"\n'  # a deb of the tests is its own control file


class _World:
    """What the fake mirror has, and what the fake program was asked for."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "mirror").mkdir(parents=True)
        for name in ("chosen", "more", "asked"):
            (folder / name).write_text("")

    def debs(self, **versions):
        """Fill the mirror; every package is chosen."""
        lines = []
        for package, version in versions.items():
            deb = self.folder / "mirror" / f"{package}_{version.replace(':', '%3a')}_amd64.deb"
            deb.write_text(f"Package: {package}\nVersion: {version}\n")
            lines.append(f"Inst {package} ({version} Made:1/suite [amd64])\nConf {package}")
        (self.folder / "chosen").write_text("\n".join(lines))

    def asked(self):
        return [line.split("\0") for line in (self.folder / "asked").read_text().splitlines()]

    def forget(self):
        (self.folder / "asked").write_text("")


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Two packages on a mirror, with mmdebstrap and dpkg-deb of the test."""
    folder = tmp_path / "fake bin"
    world = _World(folder / "world")
    world.debs(busybox="1:1.37-6", libc6="2.41-12")
    (folder / "fake.py").write_text(_MMDEBSTRAP)
    programs = {"mmdebstrap": f'#!/bin/sh\nexec "{sys.executable}" "{folder}/fake.py" "$@"\n'}
    for name, text in (programs | {"dpkg-deb": _FIELDS, "bwrap": "#!/bin/sh\n"}).items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return world


@pytest.fixture
def matrix(project_root):
    """A maker of matrices with environment `made`, a root of a made suite."""
    whole = load_matrix(project_root / "lanes" / "matrix.toml")

    def make(**changes):
        fields = {"packages": ("busybox",), "suite": "bookworm", "apt_options": ('Acquire::X "y z"',)}
        fields |= {"kind": "sysroot", "summary": "made", "path": ("/usr/bin",), "gcc": "11"} | changes
        environment = {**whole.environment, "made": Environment(**fields)}
        return whole.model_copy(update={"environment": environment})

    return make


@pytest.fixture
def locked(ws, world, matrix):
    manage.renew_lock(ws, matrix(), "made")
    world.forget()
    return load_lock(ws.environment_lock("made"))


def _published(ws):
    return sorted(path.name for path in ws.environments.glob("*")) if ws.environments.exists() else []


def test_a_lock_is_of_what_the_suite_chooses_with_the_hash_of_what_came(ws, world, matrix):
    _, lock = manage.renew_lock(ws, matrix(), "made")
    assert [(file.package, file.version, file.file) for file in lock.files] == [
        ("busybox", "1:1.37-6", "busybox_1%3a1.37-6_amd64.deb"),
        ("libc6", "2.41-12", "libc6_2.41-12_amd64.deb"),
    ]
    assert [(ws.debs / file.file).stat().st_size for file in lock.files] == [file.size for file in lock.files]
    simulated, downloaded = world.asked()
    assert {"--include=?essential", "--include=busybox", "bookworm", '--aptopt=Acquire::X "y z"'} <= {
        *simulated
    }
    assert {"--include=busybox=1:1.37-6", "--include=libc6=2.41-12"} <= {*downloaded}


def test_a_root_is_made_of_the_locked_packages_alone_and_without_a_mirror(ws, world, matrix, locked):
    shutil.rmtree(world.folder / "mirror")
    made = manage.create(ws, matrix(), "made")
    assert (made.root / "usr/bin/tool").read_text() == "made\n"
    assert not (made.root / "dev/null").exists()
    assert made.digest == locked.digest
    assert made.entering.name == "bwrap"
    (asked,) = world.asked()
    assert asked[-3] == ""
    assert unquote(asked[-1].split()[2]).startswith(f"copy://{ws.environments}")


def test_a_root_tells_nothing_of_where_it_was_made(ws, world, matrix, locked):
    root = manage.create(ws, matrix(), "made").root
    files = [path for path in root.rglob("*") if path.is_file()]
    assert files
    named = [path for path in files if str(ws.root) in unquote(path.read_text())]
    assert named == []


def test_made_twice_is_no_work_and_nothing_is_left_beside_it(ws, world, matrix, locked):
    first = manage.create(ws, matrix(), "made")
    world.forget()
    assert manage.create(ws, matrix(), "made") == first == manage.enter(ws, matrix(), "made")
    assert world.asked() == []
    assert _published(ws) == [first.root.name]


def test_removing_leaves_lock_and_packages(ws, world, matrix, locked):
    made = manage.create(ws, matrix(), "made")
    (made.root / "usr").chmod(0o555)
    assert manage.remove_made(ws, matrix(), "made") == (made.root,)
    assert _published(ws) == []
    assert load_lock(ws.environment_lock("made")) == locked
    assert all((ws.debs / file.file).is_file() for file in locked.files)
    assert manage.remove_made(ws, matrix(), "made") == ()


def test_packages_that_are_missing_or_damaged_here_are_had_again(ws, world, matrix, locked):
    first, second = (ws.debs / file.file for file in locked.files)
    whole = first.read_bytes()
    first.write_bytes(whole[:-1] + b"x")
    second.unlink()
    manage.create(ws, matrix(), "made")
    assert first.read_bytes() == whole
    assert second.is_file()


def test_a_mirror_that_serves_something_else_is_refused_and_what_came_set_aside(ws, world, matrix, locked):
    name = locked.files[0].file
    (ws.debs / name).unlink()
    (world.folder / "mirror" / name).write_text("Package: busybox\nVersion: 1:1.37-6\nStolen: yes\n")
    with pytest.raises(ProofError) as caught:
        manage.create(ws, matrix(), "made")
    assert name in caught.value.message
    assert "Stolen" in (ws.debs / "quarantine" / name).read_text()
    assert not (ws.debs / name).exists()
    assert _published(ws) == []


def test_a_root_that_holds_more_than_the_lock_is_not_published(ws, world, matrix, locked):
    (world.folder / "more").write_text("\nPackage: stowaway\nVersion: 3\n")
    with pytest.raises(CheckError) as caught:
        manage.create(ws, matrix(), "made")
    assert "stowaway 3" in caught.value.cause
    assert _published(ws) == []


@pytest.mark.parametrize(
    "change", [{"packages": ("busybox", "more")}, {"suite": "trixie"}, {"apt_options": ()}]
)
def test_a_lock_that_does_not_fit_its_definition_says_to_lock_again(ws, world, matrix, locked, change):
    changed = matrix(**change)
    assert not state(ws, changed, "made").fits
    for use in (manage.create, manage.enter):
        with pytest.raises(HostError) as caught:
            use(ws, changed, "made")
        assert caught.value.remedy.startswith("dgr-build env lock made")
    assert world.asked() == []


@pytest.mark.parametrize("change", [{"gcc": "12"}, {"path": ("/bin",)}, {"summary": "other"}])
def test_what_does_not_decide_the_content_needs_no_new_lock(ws, matrix, locked, change):
    assert state(ws, matrix(**change), "made").fits


def test_an_environment_without_a_lock_or_not_made_says_the_next_command(ws, world, matrix):
    with pytest.raises(HostError) as caught:
        manage.create(ws, matrix(), "made")
    assert caught.value.remedy.startswith("dgr-build env lock made")
    assert state(ws, matrix(), "made").described == "not locked"
    manage.renew_lock(ws, matrix(), "made")
    assert state(ws, matrix(), "made").described == "locked, not made"
    with pytest.raises(HostError) as caught:
        manage.enter(ws, matrix(), "made")
    assert caught.value.remedy == "dgr-build env create made"


def test_a_damaged_lock_is_told_apart_refused_with_its_line_and_written_anew(ws, world, matrix, locked):
    file = ws.environment_lock("made")
    whole = file.read_text()
    file.write_text(whole.rstrip()[:-1] + "\n")
    assert state(ws, matrix(), "made").described == "its lock is damaged"
    assert states(ws, matrix())[-1].described == "its lock is damaged"
    told = environment_reach(ws, matrix(), "made")
    assert not told.made
    assert f"{file}:" in told.trouble
    for use in (manage.create, manage.enter):
        with pytest.raises(UsageError) as caught:
            use(ws, matrix(), "made")
        assert f"{file}:" in caught.value.message
    assert manage.renew_lock(ws, matrix(), "made") == (None, locked)
    assert file.read_text() == whole


def test_removing_leaves_an_environment_whose_name_begins_alike(ws, world, matrix, locked):
    made = manage.create(ws, matrix(), "made").root
    other = ws.environments / f"made-new-{'0' * 16}"
    other.mkdir()
    older = ws.environments / f"made-{'0' * 16}"
    older.mkdir()
    assert manage.remove_made(ws, matrix(), "made") == tuple(sorted((made, older)))
    assert _published(ws) == [other.name]


def test_the_environment_of_this_machine_has_nothing_to_make_or_lock(ws, matrix):
    assert manage.create(ws, matrix(), "host") == manage.enter(ws, matrix(), "host")
    assert manage.create(ws, matrix(), "host").root is None
    with pytest.raises(UsageError):
        manage.renew_lock(ws, matrix(), "host")


@pytest.mark.parametrize("use", [manage.create, manage.enter, manage.renew_lock, manage.remove_made])
def test_an_unknown_environment_is_named_with_those_there_are(ws, matrix, use):
    with pytest.raises(UsageError) as caught:
        use(ws, matrix(), "windows")
    assert "trixie" in caught.value.cause


def test_a_failure_shows_the_first_error_and_the_whole_log(ws, world, matrix, locked):
    (world.folder / "fails").write_text("I: fine\nE: Unable to locate package busybox\nE: apt-get failed\n")
    with pytest.raises(HostError) as caught:
        manage.create(ws, matrix(), "made")
    assert "Unable to locate package busybox" in caught.value.cause
    log = ws.logs("environment") / "made.log"
    assert "apt-get failed" in log.read_text()
    assert str(log) in caught.value.cause + caught.value.remedy
    assert _published(ws) == []


def test_without_mmdebstrap_it_says_what_to_install(ws, world, matrix, locked, monkeypatch):
    monkeypatch.setattr(sysroot.shutil, "which", lambda _: None)
    with pytest.raises(HostError) as caught:
        manage.create(ws, matrix(), "made")
    assert caught.value.remedy == "apt-get install mmdebstrap"


def test_a_definition_that_was_interrupted_publishes_nothing(ws, world, matrix, locked, monkeypatch):
    monkeypatch.setattr(sysroot, "_require_same", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        manage.create(ws, matrix(), "made")
    assert _published(ws) == []


def test_a_killed_process_leaves_nothing_published_and_the_next_one_cleans_up(ws, world, matrix, locked):
    hold = world.folder / "hold"
    hold.touch()
    folders = {name: str(getattr(ws, name)) for name in ("project", "root", "cache")}
    script = f"""
        from pathlib import Path
        from dgr_build.documents.matrix import Matrix
        from dgr_build.lanes.environment import manage
        from dgr_build.workspace import Workspace
        folders = {{name: Path(path) for name, path in {folders!r}.items()}}
        ws = Workspace(**folders)
        manage.create(ws, Matrix.model_validate_json({matrix().model_dump_json(by_alias=True)!r}), "made")
    """
    child = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], stderr=subprocess.DEVNULL)
    try:
        _wait_for((world.folder / "held").exists)
        child.send_signal(signal.SIGKILL)
        child.wait()
    finally:
        child.kill()
        child.wait()
        hold.unlink()
    left = _published(ws)
    assert left
    assert all(name.startswith(".staging-") for name in left)
    assert not state(ws, matrix(), "made").made
    made = manage.create(ws, matrix(), "made")
    assert _published(ws) == [made.root.name]


def _wait_for(condition, seconds=30):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)
