"""`nmtalign doctor`: what this machine offers to nmtalign, and what is missing."""

import sys
from typing import Annotated, Literal

from nmtalign.cli.common import choose_wait_policy, json_text, own_option, status_line
from nmtalign.cli.info import fact_lines
from nmtalign.errors import ResourceError


def doctor(
    format: Annotated[Literal["text", "json"], own_option("Format of the description.")] = "text",
) -> None:
    """Describe this machine: processor, memory, devices, versions, extras, and problems with their fixes.

    The exit code is 5 if nmtalign cannot run here.

    Examples:

      nmtalign doctor

      nmtalign doctor --format json | jq .problems
    """
    choose_wait_policy()
    with status_line("measuring", quiet=False):
        from nmtalign.machine import describe_machine

        facts = describe_machine()
    problems = facts["problems"]
    if format == "json":
        sys.stdout.write(json_text(facts, indent=2) + "\n")
    else:
        named = {one["problem"]: one["fix"] for one in problems} or "none found"
        sys.stdout.writelines(fact_lines({**facts, "problems": named}))
    if unusable := [f"{one['problem']} ({one['fix']})" for one in problems if one.get("unusable")]:
        raise ResourceError(f"nmtalign cannot run here: {'; '.join(unusable)}")
