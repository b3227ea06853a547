"""The documentation is true: its commands and its Python run, and its options, links and numbers exist.

Budgets are made smaller. The commands of a page run one after the other, as a reader would run them.
"""

import contextlib
import csv
import json
import pkgutil
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from helpers import command_line
from helpers.commands import COMMANDS, call
from helpers.manual import manual

import nmtalign
from nmtalign.errors import FormatError
from nmtalign.settings.definition import SECTIONS

ROOT = Path(__file__).parent.parent
README, DOCS = ROOT / "README.md", ROOT / "nmtalign" / "docs"
GUIDE, FORMATS, TUTORIAL, RESULTS = (DOCS / f"{name}.md" for name in ("guide", "formats", "tutorial", "results"))
PAGES = [README, *sorted(DOCS.glob("*.md")), ROOT / "examples/README.md"]
REPORTS_OF_TESTS = sorted((ROOT / "tests").rglob("README.md"))
SMALLER = [
    (r"nmtalign sample (\S+)", r"nmtalign sample \1 --pairs 200"),
    (r"--pairs \d+", "--pairs 200"),
    (r"nmtalign train\b", "nmtalign train --threads 1 --max-updates 4"),
    (r"--max-time \d+[smh]", ""),
    (r"--max-updates \d+", "--max-updates 4"),
    (r"--size \d+", "--size 300"),
    (r"--sentence \d+", "--sentence 0"),
    (r"nmtalign link\b", "nmtalign link --threads 1"),
]
ERRORS = {  # messages that the tutorial explains, and a command that ends with each
    "a.fr: has no line 100, but a.en has 100 lines": "head -n 100 train.en > a.en; head -n 99 train.fr > a.fr; "
    "nmtalign prep a.en a.fr -o other/",
    "b.en: line 1: not UTF-8 (byte 0xe9 at column 4)": "printf 'caf\\xe9\\n' > b.en; nmtalign prep b.en b.en -o other/",
    "data: contains a corpus of other text or settings": "nmtalign prep train.en train.fr --set max_length=9 -o data/",
    "model: contains a model trained with other settings": "nmtalign train data/ -o model/ --set hidden=7",
    "model: already done": "nmtalign train data/ -o model/ --threads 1 --max-updates 1",
    "nomodel: no nmtalign model here (no config.json)": "nmtalign translate -m nomodel/ < test.en",
}
REPORTS = [("large", "test"), ("large", "news"), ("sample", "test")]  # of the columns of the results


def blocks(language, path=README):
    """The code blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.M | re.S)


@pytest.fixture(scope="session")
def environment(tmp_path_factory):
    """The environment of a user with an installed nmtalign."""
    return {**command_line.environment_with_nmtalign(tmp_path_factory.mktemp("bin")), "PYTHONPATH": str(ROOT)}


def run_shell(codes, folder, environment):
    """Runs shell code with smaller budgets, each where the one before ended; returns the last folder."""
    state = folder / "folder"
    for code in codes:
        for pattern, smaller in SMALLER:
            code = re.sub(pattern, smaller, code)
        stop = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT  # a server, after an error, too"
        call = ["bash", "-euo", "pipefail", "-c", f"{stop}\n{code}\npwd > '{state}'"]
        result = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{code}\n{result.stdout}\n{result.stderr}"
        folder = Path(state.read_text().rstrip("\n"))
    return folder


def check_errors(folder, environment):
    """Each documented message is the message of its command, and the tutorial has it."""
    text = TUTORIAL.read_text(encoding="utf-8")
    for message, code in ERRORS.items():
        assert f"| `{message}` |" in text
        result = subprocess.run(["bash", "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
        assert message in result.stderr, f"{code}\n{result.stderr}"


def run_python(codes, folder, environment):
    """Runs each Python example as a program; it prints something with parentheses or braces."""
    for code in codes:
        call = [sys.executable, "-c", code]
        result = subprocess.run(call, cwd=folder, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, f"{code}\n{result.stderr}"
        assert set("({") & set(result.stdout), code


def test_readme(tmp_path, environment):
    assert blocks("sh")
    assert blocks("python")
    folder = run_shell(blocks("sh"), tmp_path, environment)
    run_python(blocks("python"), folder, environment)
    assert (folder / "figure3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tutorial(tmp_path, environment):
    assert len(blocks("sh", TUTORIAL)) >= 10
    folder = run_shell(blocks("sh", TUTORIAL), tmp_path, environment)
    assert len((folder / "own-data/test.fr").read_text(encoding="utf-8").splitlines()) == 50
    assert json.loads((folder / "nightly.json").read_text())["systems"]
    check_errors(folder, environment)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_guide_and_formats(tmp_path, environment):
    before = """
        nmtalign sample . && rm nmtalign.toml
        nmtalign prep train.en train.fr --dev dev.en dev.fr --test test.en test.fr -o data/
        nmtalign train data/ -o model/
    """
    assert len(blocks("python", FORMATS)) >= 5
    run_shell([before, *blocks("sh", GUIDE)], tmp_path, environment)
    run_python([*blocks("python", GUIDE), *blocks("python", FORMATS)], tmp_path, environment)


def test_the_keys_of_logs_and_of_json_are_explained():
    from nmtalign.alignment.link_files import LinkFigures
    from nmtalign.training import events
    from nmtalign.translating.rescoring import ScoredPair, pair_json

    recorded = [kind for kind in vars(events).values() if isinstance(kind, type) and getattr(kind, "recorded", False)]
    keys = {field.name for kind in recorded for field in fields(kind)}
    assert {"loss", "in_a_row", "diverged"} < keys
    keys |= {*vars(LinkFigures()), *LinkFigures().rates(), "name", "signature"}  # of `aer`
    keys |= json.loads(pair_json(ScoredPair(0, "", "", (), (), 0, 0, 0.0, 0.0, (0.0,)))).keys()
    assert keys <= {*re.findall(r"`(\w+)`", FORMATS.read_text(encoding="utf-8"))}


@pytest.mark.parametrize(("page", "time"), [(GUIDE, "2h"), (TUTORIAL, "")])
def test_the_workspace_files_shown_are_valid(tmp_path, page, time):
    from nmtalign.settings.definition import load_workspace, resolve
    from nmtalign.settings.training_settings import TrainingConfig

    path = tmp_path / "nmtalign.toml"
    path.write_text(blocks("toml", page)[0])
    loaded = load_workspace(path)
    assert resolve(TrainingConfig, loaded.section("train")).max_time == time


def test_readme_is_short_and_names_every_command():
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 100
    for command in COMMANDS:
        assert re.search(rf"`{command}`|nmtalign {command}\b", text), command


def documented_commands(page):
    """The name of a command and the words that follow it, of each mention in code on a page."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ").replace("\\|", "|")
    fence = re.compile(r"^```(\w*)\n(.*?)^```", re.M | re.S)
    code = [block for language, block in fence.findall(text) if language in ("", "sh")]
    code += re.findall(r"`([^`\n]+)`", fence.sub("", text))
    for line in (line for block in code for line in block.split("\n")):
        for part in re.split(r"[|;&(<>]| #", line):
            if found := re.match(r"\s*(?:\$ |torchrun .*-m )?nmtalign ([a-z][a-z-]*)(?=\s|$)(.*)", part):
                yield found[1], shlex.split(found[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documented_commands_options_and_settings_go_together(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mentions = list(documented_commands(page))
    assert mentions
    for name, words in mentions:
        assert name in COMMANDS, f"nmtalign {name}"
        known = {text for one in COMMANDS[name].params for text in (*one.opts, *one.secondary_opts)}
        options = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
        assert options <= known | {"--help"}, f"nmtalign {name}: {options - known}"
        if "--show-settings" in known and not {"NAME", "KIND", "T"} & {*re.split(r"[ =]", " ".join(words))}:
            with contextlib.suppress(FormatError):  # a model that only the reader has
                call(name, *words, "--show-settings")


def anchors(path):
    """The anchors of the headings of a Markdown page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)", path.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    for link in [*re.findall(r"\]\(([^)\s]+)\)", text), *re.findall(r'src="([^"]+)"', text)]:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", [*PAGES, *REPORTS_OF_TESTS], ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_named_exist(page):
    for name in set(re.findall(r"`(nmtalign(?:\.\w+)+)`", page.read_text(encoding="utf-8"))) - {"nmtalign.toml"}:
        assert pkgutil.resolve_name(name)


def test_results_are_those_of_the_reports():
    """The table of results has the numbers of the reports, and its column of the paper's numbers those of the paper."""
    from nmtalign.reproduction.reproduction_report import OTHERS, PAPER

    papers = {**PAPER, **OTHERS}
    table = re.search(r"^\| `multi-bleu`[^\n]*\n(?:\|.*\n)+", RESULTS.read_text(encoding="utf-8"), re.M)
    assert table is not None
    rows = [[cell.strip().replace("\\", "") for cell in line.split("|")[1:-1]] for line in table[0].splitlines()]
    assert rows[0][1:] == ["statutes", "news", "sample corpus", "the paper"]
    assert [row[0] for row in rows[2:]] == list(papers)
    for name, *ours, paper in rows[2:]:
        assert paper == " / ".join(f"{bleu:.2f}" for bleu in papers[name])
        for cell, (report, test) in zip(ours, REPORTS, strict=True):
            found = scores_of(report, test).get(name)
            assert cell == (" / ".join(f"{found[subset]:.2f}" for subset in ("all", "no-unk")) if found else "")


def scores_of(report, test):
    """The tokenised BLEU of each model of a report, of all sentences and of those without an unknown word."""
    found = {}
    with (ROOT / "examples/reproduction" / report / "scores.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if (row["test"], row["metric"], row["by"]) == (test, "multi-bleu", ""):
                found.setdefault(row["system"], {})[row["subset"]] = float(row["value"])
    return found


SHIPPED = Path(nmtalign.__file__).parent / "docs" / "manual.md"


def test_the_shipped_manual_is_up_to_date() -> None:
    assert SHIPPED.read_text() == manual(), "run: python tests/helpers/manual.py > nmtalign/docs/manual.md"
    assert len(manual().splitlines()) <= 500


def test_the_manual_contains_every_option_and_setting() -> None:
    text = manual()
    everywhere = text.split("\n### ")[0]
    for name, command in COMMANDS.items():
        part = everywhere + text.split(f"\n### nmtalign {name}\n")[1].split("\n### ")[0]
        for one in command.params:
            if one.param_type_name == "option":
                assert all(f"`{option}`" in part for option in one.opts), (name, one.name)
    for name, settings in SECTIONS.items():
        part = text.split(f"\n### [{name}]\n")[1].split("\n### ")[0]
        assert all(f"| `{setting}`" in part for setting in settings)
    assert "| 130 " in text
