"""An environment that is there: where its paths lie here, and how programs are started in it."""

import shutil
import subprocess

import pytest

from dgr_build.errors import HostError
from dgr_build.lanes.environment import made as module
from dgr_build.lanes.environment.made import Made

_CUT = ("unshare", "--net", "--")


@pytest.fixture(autouse=True)
def _can_cut(monkeypatch):
    monkeypatch.setattr(module, "without_network", lambda: _CUT)


@pytest.fixture
def root(tmp_path):
    """A small Debian root: merged /usr, a few folders, and one of the machine's own."""
    folder = tmp_path / "a röot"
    for name in ("usr/bin", "etc", "opt", "home", "tmp", "proc", "var/lib"):
        (folder / name).mkdir(parents=True)
    (folder / "usr/bin/g++").write_text("")
    (folder / "usr/bin/cc").symlink_to("/etc/alternatives/cc")  # leads nowhere from outside
    (folder / "bin").symlink_to("usr/bin")
    return folder


@pytest.fixture
def sysroot(root, tmp_path):
    return Made(name="r", kind="sysroot", digest="0" * 64, root=root, entering=tmp_path / "bwrap")


def _pairs(words, option):
    return {(words[at + 1], words[at + 2]) for at, word in enumerate(words) if word == option}


@pytest.mark.parametrize("kind", ["host", "wheels"])
def test_what_runs_on_this_machine_is_started_as_it_is_but_for_the_network(kind, tmp_path):
    made = Made(name="x", kind=kind, digest="0" * 64, root=tmp_path if kind == "wheels" else None)
    argv = [tmp_path / "cc", "-c"]
    assert made.command(argv, read=(tmp_path,), write=(tmp_path,), network=True) == [str(argv[0]), "-c"]
    assert made.command(argv) == [*_CUT, str(argv[0]), "-c"]
    assert made.outside(tmp_path / "x") == tmp_path / "x"
    assert made.lies(tmp_path)
    assert not made.lies(tmp_path / "x")


def test_a_root_is_entered_without_network_unless_it_is_asked_for(sysroot):
    assert "--unshare-net" in sysroot.command(["/usr/bin/g++"])
    assert "--unshare-net" not in sysroot.command(["/usr/bin/g++"], network=True)
    assert sysroot.cuts_network()


def test_the_command_comes_last_and_whole(sysroot):
    words = sysroot.command(["/usr/bin/g++", "--", "a b"])
    assert words[0] == str(sysroot.entering)
    assert words[words.index("--") :] == ["--", "/usr/bin/g++", "--", "a b"]


def test_folders_of_a_root_can_only_be_read_and_its_links_stay_links(sysroot, root):
    words = sysroot.command(["true"])
    assert {inside for _, inside in _pairs(words, "--ro-bind")} == {"/usr", "/etc", "/opt"}
    assert _pairs(words, "--symlink") == {("usr/bin", "/bin")}
    assert _pairs(words, "--bind") == set()
    assert not any(str(root / name) in words for name in ("home", "tmp", "proc", "var"))


def test_what_is_named_is_bound_at_the_same_paths_and_written_only_where_asked(sysroot, tmp_path):
    source, build = tmp_path / "source", tmp_path / "build"
    words = sysroot.command(["true"], read=(source,), write=(build,))
    assert (str(source), str(source)) in _pairs(words, "--ro-bind")
    assert _pairs(words, "--bind") == {(str(build), str(build))}
    # A later bind covers an earlier one: what is written may lie inside of what is read.
    assert words.index(str(source)) < words.index(str(build))


def test_paths_of_a_root_are_found_in_it_and_bound_ones_where_they_are(sysroot, root, tmp_path):
    assert sysroot.outside(module.Path("/usr/bin/g++")) == root / "usr/bin/g++"
    assert sysroot.outside(tmp_path / "build") == tmp_path / "build"
    assert sysroot.lies(module.Path("/usr/bin/cc"))
    assert not sysroot.lies(module.Path("/usr/bin/ld"))
    assert not sysroot.lies(tmp_path)


def test_a_root_that_nothing_can_enter_says_what_to_install(root):
    made = Made(name="r", kind="sysroot", digest="0" * 64, root=root)
    with pytest.raises(HostError) as caught:
        made.command(["true"])
    assert caught.value.remedy == "apt-get install bubblewrap"


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="needs bubblewrap")
def test_the_real_program_takes_these_words(root, tmp_path):
    made = Made(name="r", kind="sysroot", digest="0" * 64, root=root, entering=shutil.which("bwrap"))
    done = subprocess.run(
        made.command(["/not/there"], read=(tmp_path,)), capture_output=True, text=True, check=False
    )
    if "namespace" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip("this machine lets nobody make a namespace")
    assert "/not/there" in done.stderr
