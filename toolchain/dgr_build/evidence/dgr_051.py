"""DGR-051 as data: criteria of the V4 adapter, standing gates, and what a reader must not conclude."""

from __future__ import annotations

from dgr_build.documents.recipe import TinyModel
from dgr_build.evidence.run import Criterion

SUBJECT = "DGR-051"
TITLE = "DGR-051: DeepSeek V4 over layer ranges, adapter and standing gates"
SUMMARY = """\
The criteria of the V4 adapter and the standing gates, each with the command that was run for it and its
result. `passes` speaks of the criterion itself: it is `true` only where this run shows all of it."""

MODELS = {
    "tiny V4": TinyModel(arch="deepseek4"),
    "tiny V4, another seed (the foreign artifact)": TinyModel(arch="deepseek4", seed=2),
    "wide V4": TinyModel(arch="deepseek4", profile="wide"),
    "tiny llama": TinyModel(arch="llama"),
}

_REAL = "the real model's weights"

CRITERIA = (
    Criterion(
        text="Head, middle, tail and whole ranges over all 43 main layers give the bits of the unsplit model "
        "on the base library over gRPC: whole, 2, 3, 4, 7, 12, 43 stages, cuts 1 and 2",
        command="parity",
        cases="equals_the_whole_bit_for_bit",
        needs=_REAL,
    ),
    Criterion(
        text="Every cut 1 to 42, those inside the hash-routed layers too, in process",
        command="ctest",
        cases=r"^ParityV4\.EveryCut",
        needs=_REAL,
    ),
    Criterion(
        text="Two interleaved sessions in exact mode each equal their solo run",
        command="parity",
        cases="two_sessions_in_turn",
        needs=_REAL,
    ),
    Criterion(
        text="What must not pass for parity does not: a swapped id, a shifted position, ids swapped on one "
        "stage only, a foreign artifact, a stale epoch",
        command="controls",
        needs=_REAL,
    ),
    Criterion(
        text="Range ownership, mHC boundary, positions, token-id sideband, and shard-local session and epoch "
        "state are integrated, and Describe lists the state that the range owns",
        command="rules",
        cases="w2_|w7|w13|w21|w22|w23|w28|describe|status|boundary",
        needs=_REAL,
    ),
    Criterion(
        text="MTP is reported as reserved, not executable; unsupported ranges, cuts and cache expectations "
        "are refused with the reason and the legal choices",
        command="rules",
        cases="w10|describe|illegal_range",
        needs=_REAL,
    ),
    Criterion(
        text="Describe states the identity of adapter, schema, runtime and artifact, and the legal cuts",
        command="rules",
        cases="describe",
        needs=_REAL,
    ),
    Criterion(
        text="MoE, attention, mHC and hash routing are upstream's: its own test of every architecture passes "
        "on base and patched tree alike, and a whole model gives the same bits on both",
        command="upstream",
        needs=_REAL,
    ),
    Criterion(text="The same on a GPU lane", needs="a GPU and its lane"),
    Criterion(text="The same between machines", needs="several machines and a network"),
    Criterion(text="Gate: the patch stack applies and reverses, every tree equal", command="patches"),
    Criterion(text="Gate: compileall, whitespace, ruff, strict types, import layers", command="gates"),
    Criterion(text="Gate: unit tests", command="unit"),
    Criterion(text="Gate: C++ tests of the lane", command="ctest"),
    Criterion(text="Gate: rules that a worker must keep on the wire", command="rules"),
    Criterion(text="Gate: a dense model over stages equals the whole", command="parity", cases="dense"),
    Criterion(text="Gate: the shipped recipes find no difference", command="parity", cases="run_command"),
)

LIMITATIONS = (
    "The weights are synthetic: layer plan, kinds of state and widths are V4's, its behaviour is not.",
    "Nothing here says that the real model loads, fits or answers well, nor how fast it would be.",
    "One CPU lane on one machine, one thread on both sides; other thread counts are other numerics.",
    "All stages ran on one machine over loopback, without TLS.",
    "The record is about the digests that it names, and about nothing built from other ones.",
)

NEXT = (
    "The real model's artifact with its manifest: repeat this flow on it and set its digest beside these.",
    "The other lanes of the matrix: build, inspect and compare each with its own whole model.",
    "Throughput mode, which this worker refuses; several machines over TLS.",
    "The MTP block: reserved on the tail; cuts 41 and 42 cannot feed a draft head across them.",
)
