"""The manual that is shipped is the one that the definitions give, and it contains every option and setting."""

from pathlib import Path

import typer
from helpers.manual import manual
from nmtalign.cli.commands import app

import nmtalign
from nmtalign.settings.definition import SECTIONS

SHIPPED = Path(nmtalign.__file__).parent / "docs" / "manual.md"


def test_the_shipped_manual_is_up_to_date() -> None:
    assert SHIPPED.read_text() == manual(), "run: python tests/helpers/manual.py > nmtalign/docs/manual.md"


def test_the_manual_contains_every_option_and_setting() -> None:
    text = manual()
    for name, command in typer.main.get_command(app).commands.items():
        part = text.split(f"\n## nmtalign {name}\n")[1].split("\n## ")[0]
        for one in command.params:
            if one.param_type_name == "option":
                assert all(f"`{option}`" in part for option in one.opts), (name, one.name)
    for name, settings in SECTIONS.items():
        part = text.split(f"\n### [{name}]\n")[1].split("\n### ")[0]
        assert all(f"| `{setting}` |" in part for setting in settings)
    assert "| 130 " in text
