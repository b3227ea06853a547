"""The settings of serve: a frozen dataclass, validated when it is made."""

from dataclasses import dataclass

from nmtalign.settings.definition import SettingError, byte_count, check_settings, seconds, section, setting

ADDRESS, LIMITS = "Address", "Limits"


def host_names(name: str, text: str) -> list[str]:
    """The names of hosts of "translate.example, *.inside.example"."""
    found = [part.strip() for part in text.split(",") if part.strip()]
    for part in found:
        if "*" in part.removeprefix("*.") and part != "*":
            raise SettingError("give names such as translate.example or *.inside.example", **{name: text})
    return found


@section("serve")
@dataclass(frozen=True)
class ServeConfig:
    """Where `serve` listens, and what one client may ask for (section [serve])."""

    port: int = setting(5000, "Port; 0 chooses a free one.", ADDRESS, common=True, at_most=65535)
    host: str = setting(
        "127.0.0.1", "Address to listen on; the default serves this machine only.", ADDRESS, common=True
    )
    allowed_hosts: str = setting(
        "",
        "More names by which clients may address the server, or *.",
        ADDRESS,
        form=host_names,
        metavar="NAME,...",
        unset="localhost, 127.0.0.1, [::1] and the host",
    )
    max_body: str = setting("1M", "Largest body of a request.", LIMITS, common=True, form=byte_count, metavar="SIZE")
    max_lines: int = setting(1000, "Largest number of lines of a request.", LIMITS, common=True, at_least=1)
    max_characters: int = setting(20_000, "Largest number of characters of a line.", LIMITS, at_least=1)
    max_queue: int = setting(10_000, "Largest number of lines that wait.", LIMITS, common=True, at_least=1)
    time_limit: str = setting("60s", "Longest time of a request.", LIMITS, common=True, form=seconds, metavar="TIME")
    shutdown_time: str = setting(
        "20s",
        "After Ctrl-C or SIGTERM, answer waiting requests for at most this time.",
        LIMITS,
        form=seconds,
        metavar="TIME",
    )

    def __post_init__(self) -> None:
        check_settings(self)
