"""An evidence record: what was run, on what, with which outcome; one document, named by its own digest."""

from __future__ import annotations

import datetime as dt
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from dgr_build.documents.artifact import Part
from dgr_build.documents.base import Document, Sha1, Sha256, digest

Line = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$")]
Verdict = Literal["passed", "failed", "not run"]


class Command(Document):
    """A command that was run.

    Attributes:
        argv: as typed in the project's folder; folders of the machine go by name, such as `$DGR_MODELS`.
        exit_code: what it ended with.
        seconds: what it took.
    """

    argv: Annotated[tuple[Line, ...], Field(min_length=1)]
    exit_code: int
    seconds: Annotated[float, Field(ge=0)]


class ArtifactFacts(Document):
    """A model that took part.

    Attributes:
        name: what it is, for a person.
        digest: the artifact digest.
        arch: the model family.
        n_layer: main layers.
        parts: every file with its size and content.
        synthetic: weights that the project made itself; they show mechanics, not a model's behaviour.
    """

    name: Line
    digest: Sha256
    arch: Line
    n_layer: Annotated[int, Field(ge=1)]
    parts: Annotated[tuple[Part, ...], Field(min_length=1)]
    synthetic: bool


class Digests(Document):
    """What the record is about, by digest. Nothing else may be given credit by it.

    Attributes:
        pin_commit: upstream's commit.
        pin_tree: its tree.
        proof: whether commit and tree were proven (`full`) or the tree alone.
        patched_tree: after the stack.
        series_sha256: of the series document.
        lane: the lane's name.
        lane_digest: of the rendered plan, None where nothing was built.
        worker_sha256: of the worker's executable, None likewise.
        reference_sha256: of the reference program's, None where it took no part.
        artifacts: every model that took part.
        recipes: digest of each recipe, by its name.
        numerics: digest of each set of numerics that workers reported, by what it is called.
    """

    pin_commit: Sha1
    pin_tree: Sha1
    proof: Literal["full", "tree"]
    patched_tree: Sha1
    series_sha256: Sha256
    lane: Line
    lane_digest: Sha256 | None
    worker_sha256: Sha256 | None
    reference_sha256: Sha256 | None = None
    artifacts: tuple[ArtifactFacts, ...] = ()
    recipes: dict[str, Sha256] = Field(default_factory=dict)
    numerics: dict[str, Sha256] = Field(default_factory=dict)


class Environment(Document):
    """Where it ran; no name, address or folder of the machine.

    Attributes:
        cpu: the processor's model.
        cores: logical ones that this process may use.
        memory_bytes: of the machine.
        os: name and version of the distribution.
        kernel: release of the kernel.
        compiler: the C++ compiler with its version.
        backend: what computed.
        driver: of the devices; "none" on a CPU.
        network: what lay between the stages.
    """

    cpu: Line
    cores: Annotated[int, Field(ge=1)]
    memory_bytes: Annotated[int, Field(ge=1)]
    os: Line
    kernel: Line
    compiler: Line
    backend: Line
    driver: Line = "none"
    network: Line = "loopback"


class Result(Document):
    """One criterion, how it was tried, and what came of it.

    Attributes:
        criterion: what must hold.
        command: index of the command in the record, None when nothing was run for it.
        verdict: how what was run ended.
        shown: what exactly was run and seen, in numbers.
        needs: what the criterion further demands and this run did not have, "" when nothing.
        passes: the criterion itself holds; never true while it needs something more.
    """

    criterion: Line
    command: Annotated[int, Field(ge=0)] | None = None
    verdict: Verdict
    shown: str = ""
    needs: str = ""
    passes: bool

    @model_validator(mode="after")
    def _claims_no_more_than_was_run(self) -> Self:
        if self.passes and (self.verdict != "passed" or self.needs or self.command is None):
            raise ValueError(
                f"{self.criterion}: passes, though the verdict is {self.verdict} and it needs {self.needs!r}"
            )
        if self.verdict == "passed" and self.command is None:
            raise ValueError(f"{self.criterion}: passed without a command")
        return self


class ChangedFile(Document):
    """An upstream file that the stack changes, with its content before and after."""

    path: Line
    before: Sha1
    after: Sha1


class Record(Document):
    """One evidence record.

    Attributes:
        schema_version: of this document.
        subject: what it is evidence for.
        ran_at: when the run began, UTC.
        commands: everything that was run, in order.
        digests: what it ran on.
        environment: where.
        metrics: raw numbers, by what was measured.
        results: one for each criterion.
        changed_files: what the patch stack touches upstream.
        limitations: what a reader must not conclude.
        next: what the following step takes over.
    """

    schema_version: Literal[1] = 1
    subject: Line
    ran_at: dt.datetime
    commands: tuple[Command, ...]
    digests: Digests
    environment: Environment
    metrics: dict[str, Any] = Field(default_factory=dict)
    results: Annotated[tuple[Result, ...], Field(min_length=1)]
    changed_files: tuple[ChangedFile, ...] = ()
    limitations: tuple[Line, ...] = ()
    next: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _results_name_commands_that_ran(self) -> Self:
        for result in self.results:
            if result.command is None:
                continue
            if result.command >= len(self.commands):
                raise ValueError(f"{result.criterion}: there is no command {result.command}")
            if result.verdict == "passed" and self.commands[result.command].exit_code != 0:
                raise ValueError(f"{result.criterion}: passed, though its command failed")
        return self

    @property
    def id(self) -> str:
        """The digest of the record's whole content, which is its name too."""
        return digest(self.model_dump(mode="json"))

    @property
    def passes(self) -> bool:
        """Every criterion holds."""
        return all(result.passes for result in self.results)

    @property
    def sound(self) -> bool:
        """Nothing that was run failed."""
        return all(result.verdict != "failed" for result in self.results)
