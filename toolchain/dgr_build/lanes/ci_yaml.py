"""YAML that is the same text every time, with long lines whole and scripts as people write them."""

from __future__ import annotations

from io import StringIO
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import LiteralScalarString

_NO_WRAP = 4096


def yaml_text(data: Any, heading: str) -> str:
    """Return data as YAML, keys in the order given; `heading` becomes the comment above it."""
    yaml = YAML()
    yaml.width = _NO_WRAP
    yaml.indent(mapping=2, sequence=4, offset=2)
    text = StringIO()
    yaml.dump(_scripts(data), text)
    comment = "".join(f"# {line}".rstrip() + "\n" for line in heading.splitlines())
    return comment + "\n" + text.getvalue()


def remarked(data: dict[str, Any], key: str, remark: str) -> CommentedMap:
    """Return a mapping whose `key` has a remark at the end of its line."""
    made = CommentedMap(data)
    made.yaml_add_eol_comment(remark, key, column=0)
    return made


def spaced(data: dict[str, Any], after: str = "") -> CommentedMap:
    """Return a mapping with an empty line before each key but the first, or but those up to `after`."""
    made = CommentedMap(data)
    keys = list(made)
    for key in keys[keys.index(after) + 1 if after else 1 :]:
        made.yaml_set_comment_before_after_key(key, before="\n")
    return made


def _scripts(data: Any) -> Any:
    """Replace texts of several lines by literal blocks, in place where remarks hang on mappings."""
    if isinstance(data, dict):
        made = data if isinstance(data, CommentedMap) else CommentedMap()
        for key, value in list(data.items()):
            made[key] = _scripts(value)
        return made
    if isinstance(data, list | tuple):
        return [_scripts(value) for value in data]
    if isinstance(data, str) and "\n" in data:
        return LiteralScalarString(data)
    return data
