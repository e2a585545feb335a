"""Writing the stack from a git work tree that has one commit a patch on top of the base commit.

Real git writes the diffs, but from a throw-away bare repository that borrows the objects: neither the user's
settings nor the work tree's config, attributes or hooks can change a byte of what comes out.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dulwich.object_store import BaseObjectStore, DiskObjectStore
from dulwich.objects import Commit, ObjectID

from dgr_build import process
from dgr_build.documents.base import save_toml
from dgr_build.documents.series import (
    DEFAULT_UPSTREAM,
    FileEntry,
    Limits,
    PatchEntry,
    Series,
    check_names,
)
from dgr_build.errors import PatchError, UsageError
from dgr_build.patches.parse import parse_patch
from dgr_build.patches.stack import Verified, verify
from dgr_build.workspace import publish, staging, sweep

AUTHOR = "dgr-build <dgr-build@localhost>"
_HEADING = (
    "# The patch stack, in order. Written by `dgr-build patch export`; only [limits] is edited by hand.\n"
    "# For each patch: the tree after it, and the full blob ids before and after of each file.\n\n"
)
_UPSTREAM = re.compile(r"^Upstream-Status: (.+)$", re.MULTILINE)
_SLUG_LENGTH = 52
_FORMAT = (
    "format-patch", "--quiet", "--zero-commit", "--full-index", "--no-signature", "--no-stat",
    "--no-numbered", "--no-renames", "--no-attach", "--no-thread", "--no-cover-letter", "--no-signoff",
    "--no-notes", "--no-base", "--no-to", "--no-cc", "--no-add-header", "--no-from",
    "--subject-prefix=PATCH", "--encode-email-headers",
    "--diff-algorithm=myers", "--indent-heuristic", "--unified=3", "--inter-hunk-context=0",
    "--src-prefix=a/", "--dst-prefix=b/", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative",
    "--submodule=short", "--suffix=.patch",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export wrote: the series, its proof, and the names of files that changed and that are gone."""

    series: Series
    proof: Verified
    changed: tuple[str, ...]
    removed: tuple[str, ...]


def export(
    repository: Path, folder: Path, *, base: str, pinned: tuple[str, str], limits: Limits | None = None
) -> Exported:
    """Write `folder`/series.toml and its patches from the commits BASE..HEAD of a repository.

    Args:
        repository: a git work tree or bare repository with one commit a patch.
        folder: where series.toml and the patches belong; other files in it stay.
        base: the commit that the stack stands on in that repository (any revision that git understands).
        pinned: the pin's commit and tree; the base must have that tree.
        limits: what the stack may do; the defaults when None.

    Returns:
        What was written. Everything is staged, verified, and only then published.

    Raises:
        UsageError: the repository is none, has uncommitted changes, or the range is not a line of commits.
        PatchError: a commit cannot be a patch, or the stack does not verify; nothing was published.
        HostError: git is missing.
    """
    objects = _objects(repository)
    _refuse_uncommitted(repository)
    commits = _line_of_commits(repository, base, pinned[1])
    with closing(DiskObjectStore(str(objects))) as store:
        return _export(store, _Job(repository, objects, folder, commits, pinned, limits or Limits()))


@dataclass(frozen=True)
class _Job:
    repository: Path
    objects: Path
    folder: Path
    commits: tuple[tuple[str, str], ...]
    pinned: tuple[str, str]
    limits: Limits


def _export(store: DiskObjectStore, job: _Job) -> Exported:
    folder = job.folder
    sweep(folder.parent)
    with staging(folder.parent, folder.name) as stage:
        made = stage / folder.name
        if folder.is_dir():
            shutil.copytree(folder, made, ignore=shutil.ignore_patterns("*.patch", "series.toml"))
        made.mkdir(exist_ok=True)
        git_dir = _borrowing(stage / "git", job.objects)
        entries: list[PatchEntry] = []
        for number, (commit, tree) in enumerate(job.commits, start=1):
            copy = _as_the_project(git_dir, store, commit)
            entries.append(_export_one(job, git_dir, made, (number, commit, copy, tree)))
        series = Series(
            base_commit=job.pinned[0], base_tree=job.pinned[1], limits=job.limits, patches=tuple(entries)
        )
        save_toml(made / "series.toml", series, comment=_HEADING)
        check_names(series, folder / "series.toml")
        proof = verify(store, series, made)
        before, after = _digests(folder), _digests(made)
        changed = tuple(name for name in after if before.get(name) != after[name])
        removed = tuple(name for name in before if name not in after)
        if changed or removed:
            publish(made, folder)
    return Exported(series=series, proof=proof, changed=changed, removed=removed)


def _export_one(job: _Job, git_dir: Path, made: Path, source: tuple[int, str, str, str]) -> PatchEntry:
    number, commit, copy, tree = source
    raw = git_dir / "written"
    _git(git_dir, *_FORMAT, f"--output-directory={raw}", "-1", copy)
    written = list(raw.iterdir()) if raw.is_dir() else []
    if len(written) != 1:
        raise PatchError(
            f"commit {commit} changes nothing",
            remedy="drop the empty commit (git rebase -i) and export again",
        )
    data = written[0].read_bytes()
    shutil.rmtree(raw)
    try:
        patch = parse_patch(data, f"{number:04d}-{commit}")
    except PatchError as error:
        raise PatchError(
            error.message,
            cause=error.cause,
            remedy=f"change that commit and export again: git -C {job.repository} show {commit}",
        ) from error
    name = f"{number:04d}-{slug(patch.subject)}.patch"
    (made / name).write_bytes(data)
    status = _UPSTREAM.findall(patch.message)
    return PatchEntry(
        file=name,
        sha256=hashlib.sha256(data).hexdigest(),
        purpose=patch.subject,
        upstream=status[-1].strip() if status else DEFAULT_UPSTREAM,
        tree=tree,
        added=patch.added,
        removed=patch.removed,
        files=tuple(
            FileEntry(path=f.path.decode(), before=f.before.decode(), after=f.after.decode())
            for f in patch.files
        ),
    )


def slug(subject: str) -> str:
    """Return a subject as the words of a file name: lower case, dashes, cut at a word."""
    words: list[str] = re.findall(r"[a-z0-9]+", subject.lower()) or ["patch"]
    text = words[0][:_SLUG_LENGTH]
    for word in words[1:]:
        if len(text) + 1 + len(word) > _SLUG_LENGTH:
            break
        text += "-" + word
    return text


def _as_the_project(git_dir: Path, objects: BaseObjectStore, commit: str) -> str:
    """Return the id of a copy of the commit that has the project as its author, whoever typed it.

    Its message is tidied as `git am` tidies it, and signatures go, so that what `git am` makes of a patch
    exports to the same bytes. The copy lives in the throw-away repository.
    """
    typed = objects[ObjectID(commit.encode())]
    if not isinstance(typed, Commit):
        raise UsageError(f"{commit} is not a commit")
    copy = Commit()
    copy.tree, copy.parents, copy.encoding = typed.tree, typed.parents, typed.encoding
    copy.author = copy.committer = AUTHOR.encode()
    copy.author_time = copy.commit_time = typed.author_time
    copy.author_timezone = copy.commit_timezone = typed.author_timezone
    copy.message = (
        re.sub(rb"\n{3,}", b"\n\n", re.sub(rb"[ \t]+\n", b"\n", typed.message + b"\n")).strip() + b"\n"
    )
    own = DiskObjectStore(str(git_dir / "objects"))
    try:
        own.add_object(copy)
    finally:
        own.close()
    return copy.id.decode()


def _objects(repository: Path) -> Path:
    if not repository.is_dir():
        raise UsageError(f"{repository} is no folder", remedy="--from names a git work tree")
    return Path(_ask(repository, "rev-parse", "--path-format=absolute", "--git-path", "objects"))


def _refuse_uncommitted(repository: Path) -> None:
    if _ask(repository, "rev-parse", "--is-inside-work-tree") != "true":
        return
    changed = _ask(repository, "-c", "core.fsmonitor=false", "status", "--porcelain", "--untracked-files=no")
    if changed:
        raise UsageError(
            f"{repository} has changes that are not committed",
            cause=changed,
            remedy="commit them (git commit --fixup, git rebase -i --autosquash: into their patch)",
        )


def _line_of_commits(repository: Path, base: str, base_tree: str) -> tuple[tuple[str, str], ...]:
    """Return (commit, tree) of each commit above the base, oldest first."""
    try:
        bottom = _ask(repository, "rev-parse", "--verify", "--end-of-options", base + "^{commit}")
    except UsageError as error:
        raise UsageError(
            f"{repository} has no commit {base}",
            cause=error.cause,
            remedy="name the commit that the patches stand on with --base",
        ) from error
    tree = _ask(repository, "rev-parse", "--verify", bottom + "^{tree}")
    if tree != base_tree:
        raise UsageError(
            f"{base} in {repository} is not the pinned source",
            cause=f"its tree is {tree}, the pin names {base_tree}",
            remedy="name the commit that the patches stand on with --base",
        )
    listing = _ask(repository, "log", "--reverse", "--format=%H %T %P", f"{bottom}..HEAD").splitlines()
    commits: list[tuple[str, str]] = []
    parent = bottom
    for line in listing:
        commit, after, *parents = line.split()
        if parents != [parent]:
            raise UsageError(
                f"the commits from {base} to HEAD are not one line: {commit} has the parents {parents}",
                cause=f"one commit a patch, each on top of the one before; expected the parent {parent}",
                remedy=f"git rebase {bottom} makes one line of them",
            )
        commits.append((commit, after))
        parent = commit
    if not commits:
        raise UsageError(
            f"there is no commit between {base} and HEAD of {repository}",
            remedy="commit each change as one patch, then export again",
        )
    return tuple(commits)


def _borrowing(git_dir: Path, objects: Path) -> Path:
    """Make a bare repository without settings of its own that reads the objects of another."""
    if not git_dir.is_dir():
        for name in ("objects/info", "refs"):
            (git_dir / name).mkdir(parents=True)
        (git_dir / "HEAD").write_text("ref: refs/heads/main\n")
        (git_dir / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tbare = true\n")
        (git_dir / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    return git_dir


def _git(git_dir: Path, *arguments: str) -> str:
    argv = ["git", "--no-pager", f"--git-dir={git_dir}", "-c", "core.quotePath=true", *arguments]
    return _checked(process.run(argv, env=_environment(), cwd=git_dir))


def _ask(repository: Path, *arguments: str) -> str:
    argv = ["git", "--no-pager", "-c", "safe.directory=*", "-c", "core.quotePath=true", *arguments]
    return _checked(process.run(argv, env=_environment(), cwd=repository)).rstrip("\n")


def _checked(done: process.Completed) -> str:
    if done.returncode != 0:
        raise UsageError(f"git failed: {done.command}", cause=done.stderr.strip())
    return done.stdout


def _environment() -> dict[str, str]:
    """Return an environment in which no setting of the user or the system reaches git."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_TERMINAL_PROMPT": "0",
    }


def _digests(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    files = sorted(file for file in folder.iterdir() if file.suffix == ".patch" or file.name == "series.toml")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
