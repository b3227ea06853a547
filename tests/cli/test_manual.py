"""The manual that is shipped is the one that the definitions give, and it contains every option and setting."""

from pathlib import Path

from helpers.commands import COMMANDS
from helpers.manual import manual

import nmtalign
from nmtalign.settings.definition import SECTIONS

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
