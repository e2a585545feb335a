"""The commands of a page for operators, run as they stand there."""

from __future__ import annotations

import socket

from dgr_build.process import Child


def free_port():
    """Return a port that nothing listens on, as a word."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def run_page(project, name, section, replaced, log, seconds=180):
    """Run the shell blocks of a section; return the exit code and all that was said.

    Args:
        project: folder of the project, where they run.
        name: of the page in docs/.
        section: heading; its subsections are left out.
        replaced: what stands in the commands, and what is put in its place.
        log: where their words go.
        seconds: how long they may take.
    """
    page = (project / "docs" / name).read_text()
    text = page.split(f"## {section}\n")[1].split("\n#")[0]
    script = "set -eu\n" + "".join(block.split("```")[0] for block in text.split("```sh\n")[1:])
    for stated, ours in replaced:
        assert stated in script
        script = script.replace(stated, ours)
    with log.open("wb") as out:
        shell = Child(["sh", "-c", script], cwd=project, stdout=out, stderr=out)
    try:
        code = shell.wait(seconds)
    finally:
        shell.stop()
    return code, log.read_text()
