"""Names of version 0.2: options that are settings of `--set` now. They work for one release, with a note on stderr."""

from collections.abc import Collection, Mapping, Sequence

from nmtalign.settings.definition import SET, Setting

# Options whose names were not made of the name of their setting.
_SWITCHES = {
    "--separate": "joint=false",
    "--keep-duplicates": "drop_duplicates=false",
    "--unidirectional": "bidirectional=false",
    "--readout-word": "readout_previous_word=true",
    "--no-readout-word": "readout_previous_word=false",
    "--apart": "cumulative=false",
    "--attention": "draw_attention=true",
    "--no-attention": "draw_attention=false",
    "--cased": "lowercase=false",
    "--keep-end": "drop_end=false",
    "--keep-links": "reverse_links=false",
}


def settings_as_set(arguments: Sequence[str], options: Collection[str], known: Mapping[str, Setting]) -> list[str]:
    """The arguments with `--set NAME=VALUE` in place of an option that its setting no longer has.

    `options` are those that the command has, `known` its settings.
    """
    result: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        name = flag.removeprefix("--").replace("-", "_")
        positive = name.removeprefix("no_")
        if not flag.startswith("--") or flag in options:
            result.append(argument)
        elif name in known and known[name].base is not bool:
            result += [SET, f"{name}={value if equals else next(rest, '')}"]
        elif positive in known and known[positive].base is bool:
            result += [SET, f"{positive}={'true' if name == positive else 'false'}"]
        elif flag in _SWITCHES and _SWITCHES[flag].partition("=")[0] in known:
            result += [SET, _SWITCHES[flag]]
        else:
            result.append(argument)
    return result
