"""Fixtures for all tests."""

import os
import subprocess
from pathlib import Path

import pytest
from dulwich.object_store import DiskObjectStore

_ENVIRONMENT = {
    "PATH": os.environ.get("PATH", os.defpath),
    "LC_ALL": "C.UTF-8",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "A Person",
    "GIT_AUTHOR_EMAIL": "person@localhost",
    "GIT_COMMITTER_NAME": "A Person",
    "GIT_COMMITTER_EMAIL": "person@localhost",
}


class GitRepo:
    """A real git repository, the witness: made, changed and asked through the git program."""

    def __init__(self, path: Path):
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        self.git("init", "-q", "-b", "main")
        # a work tree of bytes, whatever upstream's attributes say
        self.git("config", "core.autocrlf", "false")

    def run(self, *arguments, cwd=None, stdin=b""):
        return subprocess.run(
            ["git", *map(str, arguments)],
            cwd=cwd or self.path,
            env=_ENVIRONMENT,
            input=stdin,
            capture_output=True,
            check=False,
        )

    def git(self, *arguments, cwd=None, stdin=b""):
        done = self.run(*arguments, cwd=cwd, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout

    def ask(self, *arguments):
        return self.git(*arguments).decode().strip()

    def write(self, files):
        """Write, or remove where the content is None; nothing is committed."""
        for name, content in files.items():
            file = self.path / name
            if content is None:
                file.unlink()
                continue
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def commit(self, message, files=None):
        self.write(files or {})
        self.git("add", "-A", ".")
        self.git("commit", "-q", "--allow-empty", "-F", "-", stdin=message.encode())
        return self.ask("rev-parse", "HEAD")

    def tree(self, revision="HEAD"):
        return self.ask("rev-parse", revision + "^{tree}")

    @property
    def objects(self):
        return Path(self.ask("rev-parse", "--path-format=absolute", "--git-path", "objects"))

    def store(self):
        return DiskObjectStore(str(self.objects))


@pytest.fixture
def git_repo(tmp_path):
    """A maker of repositories under the test's own folder."""
    return lambda name="repo": GitRepo(tmp_path / name)


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The checkout under test."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture
def isolated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with workspace, cache and models of its own; nothing of the person's is read or written."""
    for name, folder in (("DGR_WORKSPACE", "workspace"), ("DGR_CACHE", "cache"), ("DGR_MODELS", "models")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return tmp_path
