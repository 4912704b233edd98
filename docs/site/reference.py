"""The references of the command line and of HTTP, as Markdown made from the code."""

import importlib
import re
from typing import Any
from unittest.mock import MagicMock

import typer

HTTP = """# HTTP

The endpoints of `abaca serve`. A running server has the same at `/docs`, to try out, and at `/openapi.json`, for
programs. [Serve](serving.md) shows requests and answers.

With a token, each request needs the header `Authorization: Bearer TOKEN`. Refusals follow RFC 9457: `status`,
`title`, `detail` and a `hint`.
"""


def command_line() -> str:
    """Every command with its arguments and options."""
    from abaca import cli

    parts = ["# Command line", "The text of `abaca COMMAND --help`, for all commands."]
    for name in cli.COMMANDS:
        app = typer.Typer(add_completion=False)
        app.callback()(lambda: None)
        importlib.import_module(f"abaca.cli.{name}").add_to(app)
        group: Any = typer.main.get_command(app)
        parts += _command(name, group.commands[name], 2)
    return "\n\n".join(parts) + "\n"


def _command(name: str, command: Any, level: int) -> list[str]:
    """A command's heading, help and table of parameters; then those of its subcommands."""
    parts = ["#" * level + f" abaca {name}", re.sub(r"\[/?(?:bold)?\]", "`", command.help or "")]
    rows = [_parameter(parameter) for parameter in command.params if parameter.name != "help"]
    parts += [_table(("argument or option", "meaning", "default"), rows)] if rows else []
    for child in getattr(command, "commands", {}).values():
        parts += _command(f"{name} {child.name}", child, level + 1)
    return parts


def _parameter(parameter: Any) -> tuple[str, ...]:
    is_argument = parameter.param_type_name == "argument"
    spelled = (parameter.metavar or parameter.name.upper()) if is_argument else ", ".join(parameter.opts)
    shown = getattr(parameter, "show_default", None)
    default = shown if isinstance(shown, str) else parameter.default
    has_default = not (parameter.required or callable(default) or default in (None, False, ()))
    return f"`{spelled}`", parameter.help or "", f"`{default}`" if has_default else ""


def http() -> str:
    """Every endpoint with its parameters, fields and statuses, then the fields of all answers."""
    from abaca.serve.app import make_app

    described = make_app(MagicMock(models=[]), MagicMock(), store=MagicMock()).openapi()
    parts = [HTTP, "## Endpoints"]
    for path, methods in described["paths"].items():
        for method, endpoint in methods.items():
            parts += [f"### {method.upper()} {path.replace(':path', '')}", *_endpoint(endpoint)]
    parts.append("## Fields")
    for name, schema in described["components"]["schemas"].items():
        if "properties" in schema and not name.endswith("ValidationError"):
            parts += [f"### {name}", schema.get("description", ""), _fields(schema)]
    return "\n\n".join(parts) + "\n"


def _endpoint(endpoint: dict[str, Any]) -> list[str]:
    parts = [endpoint.get("description", "")]
    rows = [
        (f"`{one['name']}`", one.get("description", one["schema"].get("description", "")), _kind(one["schema"]))
        for one in endpoint.get("parameters", [])
    ]
    parts += [_table(("parameter", "meaning", "type"), rows)] if rows else []
    if "requestBody" in endpoint:
        parts.append(f"Body: {_kind(endpoint['requestBody']['content']['application/json']['schema'])}")
    answers = endpoint["responses"]["200"]["content"]
    kind = _kind(next(iter(answers.values()))["schema"])
    refusals = ", ".join(sorted(status for status in endpoint["responses"] if status != "200"))
    return [*parts, f"Answer: {kind}", *([f"Refusals: {refusals}"] if refusals else [])]


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    rows = [
        (f"`{name}`", one.get("description", ""), _kind(one), "yes" if name in required else "")
        for name, one in schema["properties"].items()
    ]
    return _table(("field", "meaning", "type", "required"), rows)


def _kind(schema: dict[str, Any]) -> str:
    """A JSON schema in words, with a link where it has a name."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one) for one in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    limits = f" from {lowest:g} to {highest:g}" if lowest is not None and highest is not None else ""
    return f"{schema.get('type', 'any')}{limits}"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
