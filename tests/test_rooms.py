"""A room imports only rooms above it in the table of docs/design.md."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import abaca

SOURCE = Path(abaca.__file__).parent
DESIGN = Path(__file__).parents[1] / "docs" / "design.md"

ROWS: list[set[str]] = [
    {"errors", "types", "histories", "durable", "display", "extra", "memory", "shapes"},
    {"data"},
    {"nn"},
    {"evidence"},
    {"evaluation"},
    {"auto", "options", "plugins", "policy", "training", "reasons", "recommendation", "similar", "search"},
    {"recommender", "batch", "card", "export"},
    {"study", "serve", "bench", "spark"},
    {"cli"},
]
"""The rows of the table, top to bottom. A room may import what stands above it, and within a row without a circle."""

NEVER = {
    ("nn", "data"),
    ("evidence", "data"),
    ("errors", "types"),
    ("types", "errors"),
    ("study", "serve"),
    ("serve", "study"),
}
"""What the table forbids although it stands above or beside."""

FACE = {"__init__", "__main__"}
"""The package itself: names of all rooms, loaded at first use."""


def room(module: str) -> str:
    """abaca.data.log → data."""
    return module.split(".")[1]


def module_name(path: Path) -> str:
    parts = ["abaca", *path.relative_to(SOURCE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports(path: Path) -> Iterator[str]:
    """The modules of the package that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("abaca."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relative to itself: write the whole name"
            if node.module == "abaca":
                yield from (f"abaca.{alias.name}" for alias in node.names)
            elif node.module is not None and node.module.startswith("abaca."):
                yield node.module


FILES = sorted(SOURCE.rglob("*.py"))
ROOMS = {module_name(path): sorted(set(imports(path))) for path in FILES if room(module_name(path)) not in FACE}
ROW_OF = {name: number for number, row in enumerate(ROWS) for name in row}


@pytest.mark.parametrize("module", ROOMS)
def test_a_room_imports_only_rooms_above_it(module: str) -> None:
    own = room(module)
    assert own in ROW_OF, f"{module} is in no row of the table in docs/design.md"
    for imported in ROOMS[module]:
        other = room(imported)
        if other == own or other.startswith("__"):
            continue
        assert (own, other) not in NEVER, f"{module} must not import {imported}"
        assert ROW_OF[other] <= ROW_OF[own], f"{module} imports {imported}, which stands below it"


def test_rooms_of_one_row_do_not_import_each_other_in_a_circle() -> None:
    """Nor do the modules of one room, the command line's aside: its commands are added to its `__init__`."""
    modules = {name: [i for i in found if i in ROOMS] for name, found in ROOMS.items() if room(name) != "cli"}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"a circle of imports: {' → '.join((*path, module))}"
        if module not in done:
            for imported in modules.get(module, []):
                visit(imported, (*path, module))
            done.add(module)

    for module in modules:
        visit(module, ())
    assert done >= set(modules)


def test_the_rows_are_those_of_the_design() -> None:
    """Every room that the table names stands in the same order there."""
    lines = DESIGN.read_text(encoding="utf-8").splitlines()
    rows = [line.split("|")[1] for line in lines if line.startswith("| `")]
    named = [[name.strip("`/ ") for name in row.split(",")] for row in rows]
    table = [row for row in named if any(name in ROW_OF for name in row)]
    assert [{ROW_OF[name] for name in row} for row in table] == [{number} for number in range(len(ROWS))]


def test_only_the_command_line_prints_and_exits() -> None:
    for path in FILES:
        if room(module_name(path)) in {"cli", *FACE}:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in {"print", "exit", "sys.exit", "input"}, f"{path.name}:{node.lineno} calls {called}"


def test_only_one_room_knows_kernels() -> None:
    """Nothing outside nn/ops imports ctypes, Triton or the library; `memory` calls the allocator, no kernel."""
    for path in FILES:
        module = module_name(path)
        if module.startswith("abaca.nn.ops") or module == "abaca.memory":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in found:
                kernel = name.split(".")[0] in ("ctypes", "triton") or name.startswith("abaca.nn.ops.library")
                assert not kernel, f"{path.name}:{node.lineno} imports {name}; only nn/ops knows kernels"


def test_there_is_no_room_for_odds_and_ends() -> None:
    assert not {path.stem for path in FILES} & {"utils", "util", "helpers", "helper", "common", "misc"}


def test_the_public_names_exist() -> None:
    for name in abaca.__all__:
        assert getattr(abaca, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        _ = abaca.fit
    assert dir(abaca) == abaca.__all__
