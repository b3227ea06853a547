"""The house keeps its shape: imports point downward, and the library does not print."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import nmtalign
from nmtalign import errors
from nmtalign.settings.definition import SECTIONS

PACKAGE = Path(nmtalign.__file__).parent
ROOT = PACKAGE.parent
FILES = sorted(PACKAGE.rglob("*.py"))
# Each layer imports from itself and from those below it.
LAYERS = [
    {"errors", "version"},
    {"files", "processor"},
    {"settings"},
    {"hdf5", "figures"},
    {"text", "sample"},
    {"core"},
    {"model_directory"},
    {"data", "ctranslate2_model"},
    {"alignment"},
    {"viewing"},
    {"report"},
    {"search"},
    {"translating"},
    {"scoring"},
    {"training"},
    {"reproduction", "machine", "live"},
    {"serving"},
    {"api"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


@cache
def tree_of(path: Path) -> ast.AST:
    return ast.parse(path.read_text())


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> list[str]:
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
            names += [f"{node.module}.{alias.name}" for alias in node.names] if node.module == "nmtalign" else []
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_keeps_the_rules_of_the_house(path):
    tree = tree_of(path)
    part = part_of(path)
    for name in imported(tree):
        top, *rest = name.split(".")
        if top == "nmtalign" and rest:
            below = LEVEL[rest[0]]
            assert below < LEVEL[part] or rest[0] == part, f"{path.name} imports {name}"
        assert top not in {"pickle", "dill", "joblib", "shelve", "marshal"}
        prints = top in {"typer", "rich", "click"} and name != "rich.cells"  # the widths of texts
        assert part == "cli" or not prints, f"{path.name} imports {name}"
    for node in ast.walk(tree):
        assert not isinstance(node, ast.Assert), f"{path.name}:{node.lineno}: assert as validation"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"print", "exit", "eval", "exec"}, f"{path.name}:{node.lineno}"


def test_names_of_files_and_classes_are_unique():
    files = Counter(path.name for path in FILES if path.name != "__init__.py")
    classes = Counter(node.name for path in FILES for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef))
    assert [name for name, count in (files + classes).items() if count > 1] == []


def test_imports_have_no_circles():
    """Neither at the top of a file nor inside a function; only annotations may need a circle."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    graph = {}
    for name, path in modules.items():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                node.body = []
        graph[name] = {found for found in imported(tree) if found in modules}
    TopologicalSorter(graph).prepare()  # raises CycleError


def test_the_map_of_the_code_lists_all_packages_from_top_to_bottom():
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", (PACKAGE / "docs" / "code.md").read_text(), re.M)
    names = re.findall(r"\w+", " ".join(rows))
    assert {*names} == LEVEL.keys() - {"version", "__main__"}
    assert names == sorted(names, key=lambda name: -LEVEL[name])


def test_top_level_contains_what_its_owner_fixed():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if not tracked[0]:
        pytest.skip("not a git checkout")
    fixed = {"nmtalign", "bin", "tests", "examples", "pyproject.toml", "CHANGELOG.md", "README.md", "LICENSE"}
    assert {name.split("/")[0] for name in tracked if name} <= fixed | {".ci", ".gitignore"}


def test_help_imports_no_torch():
    code = (
        "import sys; sys.argv = ['nmtalign', '--help']\n"
        "from nmtalign.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'typer', 'torch', 'h5py', 'numpy', 'sacrebleu', 'sacremoses', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "translate" in result.stdout


def test_every_error_has_its_documented_exit_code():
    manual = (PACKAGE / "docs" / "manual.md").read_text()
    documented = dict(re.findall(r"^\| (\d+) \| (\w+Error)", manual, re.M))
    found = [(name, cls) for name, cls in vars(errors).items() if isinstance(cls, type)]
    classes = {str(cls.exit_code): name for name, cls in found if issubclass(cls, errors.NmtalignError)}
    assert documented == classes


def test_no_list_classifies_settings_by_their_names():
    """What distinguishes settings is a field of their definitions, see `select`."""
    names = {name for settings in SECTIONS.values() for name in settings}
    for path in (path for path in FILES if part_of(path) != "settings" and path.name != "old_names.py"):
        nodes = list(ast.walk(tree_of(path)))
        types = [node.slice for node in nodes if isinstance(node, ast.Subscript)]  # such as Literal["updates", "words"]
        for node in nodes:
            if isinstance(node, ast.Tuple | ast.List | ast.Set) and node not in types:
                values = [one.value for one in node.elts if isinstance(one, ast.Constant)]
                listed = len(values) >= 3 and len(values) == len(node.elts) and names.issuperset(values)
                assert not listed, f"{path.name}:{node.lineno}: {values}"


def test_every_file_of_the_package_is_in_the_wheel():
    given = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = [(ROOT / package.replace(".", "/"), name) for package, names in given.items() for name in names]
    carried = {path for folder, name in patterns for path in folder.glob(name)}
    found = {path for path in PACKAGE.rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
    assert PACKAGE / "docs" / "formats.md" in found
    assert found == carried


def test_the_public_names_are_listed_without_pytorch():
    program = "import sys, nmtalign; assert {*nmtalign.__all__} <= {*dir(nmtalign)}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
    assert all(hasattr(nmtalign, name) for name in nmtalign.__all__)
