"""YAML and ``--set`` overrides -> a checked config, with errors that name the key and the nearest one there is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import yaml
from pydantic import TypeAdapter, ValidationError

from sam3_stream.config.base import Config
from sam3_stream.config.live import LiveJobConfig
from sam3_stream.config.models import JobConfig
from sam3_stream.config.preview import PreviewConfig
from sam3_stream.core.errors import ConfigError
from sam3_stream.core.urls import redact_credentials

AnyJobConfig = JobConfig | LiveJobConfig | PreviewConfig
C = TypeVar("C", bound=Config)


def load_config(path: Path, overrides: Sequence[str] = ()) -> AnyJobConfig:
    """Read a YAML config: a job from file to outputs; where it has `streams`, live streams; with `preview`, the page.

    Relative paths in it are relative to the working directory, as on the command line.

    Args:
        path: The YAML file.
        overrides: ``path.to.field=value`` each; the value is read as YAML, a number in the path counts list entries.

    Raises:
        ConfigError: The file cannot be read, is not YAML, or holds an unknown key or a bad value.
    """
    try:
        tree = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot read the config {path}: {reason}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict):
        raise ConfigError(f"{path} must hold a mapping with source or streams; got {type(tree).__name__}")
    for override in overrides:
        _apply_override(tree, override)
    if "preview" in tree:
        return parse_config(tree, str(path), PreviewConfig)
    return parse_config(tree, str(path), LiveJobConfig) if "streams" in tree else parse_config(tree, str(path))


@overload
def parse_config(tree: dict[str, Any], where: str) -> JobConfig: ...
@overload
def parse_config(tree: dict[str, Any], where: str, kind: type[C]) -> C: ...
def parse_config(tree: dict[str, Any], where: str, kind: type[Config] = JobConfig) -> Config:
    """Check a tree of plain values against a config's model.

    Raises:
        ConfigError: All that is wrong with it, in one line.
    """
    try:
        return kind.model_validate(tree)
    except ValidationError as error:
        problems = "; ".join(_problem(detail, kind) for detail in error.errors())
    except ConfigError as error:
        problems = str(error)
    raise ConfigError(redact_credentials(f"{where}: {problems}"))  # not chained: the cause shows the input as it came


def job_schema() -> dict[str, Any]:
    """The JSON Schema of a config, of either kind."""
    schema: dict[str, Any] = TypeAdapter(AnyJobConfig).json_schema()
    return schema


def _apply_override(tree: dict[str, Any], override: str) -> None:
    path, equals, value = override.partition("=")
    keys = path.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override}: expected path.to.field=value, such as --set source.max_frames=100")
    node: Any = tree
    for key in keys[:-1]:
        node = _descend(node, key, override)
    try:
        parsed = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {override}: the value is not valid YAML") from error
    if isinstance(node, list):
        node[_index(node, keys[-1], override)] = parsed
    else:
        node[keys[-1]] = parsed


def _descend(node: Any, key: str, override: str) -> Any:
    if isinstance(node, list):
        return node[_index(node, key, override)]
    child = node.setdefault(key, {})
    if not isinstance(child, dict | list):
        raise ConfigError(f"--set {override}: {key} is a value, there is nothing inside it")
    return child


def _index(node: list[Any], key: str, override: str) -> int:
    if not key.isdigit() or int(key) >= len(node):
        raise ConfigError(f"--set {override}: expected a number from 0 to {len(node) - 1} in place of {key!r}")
    return int(key)


def _problem(detail: Any, kind: type[Config]) -> str:
    """One line for one pydantic error: where, what was expected, what came."""
    where = ".".join(str(part) for part in detail["loc"]) or "config"
    if detail["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        key = str(detail["loc"][-1])
        known = _known_keys(detail["loc"][:-1], kind)
        nearest = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
        hint = f"did you mean {nearest[0]!r}?" if nearest else f"known here: {', '.join(known)}"
        return f"unknown key {where!r}; {hint}"
    if detail["type"] == "union_tag_invalid":
        came, known = str(detail["ctx"]["tag"]), detail["ctx"]["expected_tags"]
        nearest = difflib.get_close_matches(came, [tag.strip("' ") for tag in known.split(",")], n=1)
        return f"{where}.type: unknown {came!r}; " + (
            f"did you mean {nearest[0]!r}?" if nearest else f"expected {known}"
        )
    if detail["type"] == "missing":
        return f"{where} is missing"
    if detail["type"] == "value_error":
        return f"{where}: {detail['ctx']['error']}" if detail["loc"] else str(detail["ctx"]["error"])
    message = detail["msg"][0].lower() + detail["msg"][1:]
    came = "" if isinstance(detail["input"], dict | list | tuple) else f", got {detail['input']!r}"
    return f"{where}: {message}{came}"


def _known_keys(location: tuple[int | str, ...], kind: type[Config]) -> list[str]:
    """The keys that the schema knows at a place in the tree."""
    schema = kind.model_json_schema()
    definitions = schema["$defs"]
    node = schema
    for part in location:
        if isinstance(part, int):
            node = node.get("items", {})
        elif part in node.get("properties", {}):
            node = node["properties"][part]
        elif "discriminator" in node:
            node = {"$ref": node["discriminator"]["mapping"][part]}
        node = next((each for each in node.get("anyOf", ()) if "$ref" in each), node)  # what need not be there
        if "$ref" in node:
            node = definitions[node["$ref"].rsplit("/", 1)[1]]
    return list(node.get("properties", {}))
