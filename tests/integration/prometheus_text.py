"""A strict reader of Prometheus' text format 0.0.4, written for the tests from the format's description."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (\S+)")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')
_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count")}


@dataclass
class Family:
    """What belongs to one name.

    Args:
        kind: counter, gauge or histogram.
        help: what it says of itself.
        samples: values by suffix and labels.
    """

    kind: str
    help: str
    samples: dict = field(default_factory=dict)

    def value(self, suffix="", **labels):
        """Return the value of one sample."""
        return self.samples[suffix, tuple(sorted(labels.items()))]


def parse(text):
    """Return the families of a page by name; an AssertionError names what is against the format."""
    assert text.endswith("\n")
    families, name, told = {}, None, ""
    for line in text.splitlines():
        if line.startswith("# HELP "):
            name, told = line.removeprefix("# HELP ").split(" ", 1)
            assert name not in families, line
        elif line.startswith("# TYPE "):
            named, kind = line.removeprefix("# TYPE ").split(" ")
            assert named == name, line
            assert re.fullmatch(_NAME, name), line
            assert kind in {"counter", "gauge", "histogram"}, line
            families[name] = Family(kind=kind, help=told)
        else:
            _take(families[name], name, line)
    for known, family in families.items():
        assert family.samples, known
        if family.kind == "counter":
            assert known.endswith("_total"), known
        if family.kind == "histogram":
            _check_histogram(known, family)
    return families


def _take(family, name, line):
    found = _SAMPLE.fullmatch(line)
    assert found, line
    full, inside, value = found.groups()
    suffix = full.removeprefix(name)
    assert full.startswith(name), line
    assert suffix in _SUFFIXES.get(family.kind, ("",)), line
    labels = _LABEL.findall(inside or "")
    assert ",".join(f'{key}="{text}"' for key, text in labels) == (inside or ""), line
    key = suffix, tuple(sorted(labels))
    assert key not in family.samples, line
    family.samples[key] = float(value)


def _check_histogram(name, family):
    series = {}
    for (suffix, labels), value in family.samples.items():
        plain = tuple(pair for pair in labels if pair[0] != "le")
        ends = dict(labels).get("le")
        series.setdefault(plain, {})[suffix, None if ends is None else float(ends)] = value
    for labels, values in series.items():
        buckets = sorted((end, value) for (suffix, end), value in values.items() if suffix == "_bucket")
        counts = [value for _, value in buckets]
        assert counts == sorted(counts), (name, labels)
        assert buckets[-1] == (float("inf"), values["_count", None]), (name, labels)
        assert values["_sum", None] >= 0, (name, labels)
