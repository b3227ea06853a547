"""Shards: contiguous blocks of the lines of a text, which separate runs of a command work on."""

import re
from dataclasses import dataclass
from typing import Self

from nmtalign.errors import UsageError


@dataclass(frozen=True)
class Shard:
    """Block `number` (from 1) of `count` blocks of lines. All blocks one after the other are the complete text."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that "I/N" describes; raises UsageError for anything else."""
        match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text.strip(), re.ASCII)
        if not match or not 1 <= int(match[1]) <= int(match[2]):
            raise UsageError(f"--shard {text}: give I/N, block I of N blocks, such as 1/8, 2/8, ... 8/8")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def block(self, lines: int) -> range:
        """The numbers of its lines, from 0, in a text of `lines` lines; empty if there are too few lines."""
        return range(lines * (self.number - 1) // self.count, lines * self.number // self.count)
