"""Commands and options of version 0.2: one line says what has replaced them."""

import pytest
from helpers.commands import COMMANDS, run

from nmtalign.cli.old_names import _COMMANDS, _OPTIONS
from nmtalign.cli.options import options_of


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("doctor --format json", "no such command: doctor; `nmtalign info` without arguments describes"),
        ("score-pairs -m a", "give `nmtalign translate SOURCE --target TARGET`"),
        ("train --cell lstm", "no such option: --cell; nmtalign calls it --set cell="),
        ("train --no-copy", "no such option: --no-copy; nmtalign calls it --set copy=false"),
        ("train --unidirectional", "nmtalign calls it --set bidirectional=false"),
        ("train --restart", "nmtalign calls it --force"),
        ("align a b --backward=y", "nmtalign calls it --model"),
        ("translate --which last", "-m MODEL/last.safetensors"),
        ("translate --prefix-file a", '"prefix": '),
        ("score --by-place", "it was removed after version 0.2; leave it out"),
        ("reproduce --threads 2", "set it in section [train] of nmtalign.toml"),
    ],
)
def test_an_old_name_is_one_line_that_says_what_to_give(tmp_path, command, words):
    done = run(tmp_path, *command.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert words in done.stderr


@pytest.mark.parametrize("old", _OPTIONS)
def test_no_replacement_is_dead(old):
    command, option = old.split()
    known = getattr(COMMANDS[command].callback, "settings", {})
    assert option not in options_of(COMMANDS[command])
    new = _OPTIONS[old].replace("=", " ").split()
    if new[0].startswith("-"):
        assert new[0] in options_of(COMMANDS[command])
        assert new[0] != "--set" or new[1] in known


def test_old_commands_are_gone():
    assert not _COMMANDS.keys() & COMMANDS.keys()
