"""Translates a table with the library `datasets`, in several processes of this machine.

Usage: python datasets_map.py MODEL INPUT.jsonl OUTPUT.jsonl PROCESSES

INPUT has one JSON object per line with the key "text". OUTPUT has the same objects in the same order, with the key
"translation" added. Install nmtalign[datasets] first.
"""

import json
import sys
from pathlib import Path

from datasets import load_dataset

from nmtalign import Translator

model, source, output, processes = sys.argv[1:]
translator = Translator.load(model, beam=5, threads=1, alignments=False)  # each process loads it once


def translate(batch):
    objects = [json.loads(line) for line in batch["text"]]
    for one, found in zip(objects, translator.translate([one["text"] for one in objects]), strict=True):
        one["translation"] = found.text
    return {"text": [json.dumps(one, ensure_ascii=False) for one in objects]}


# As lines of text: as "json", `datasets` would make numbers of dates, and give each object the keys of all others.
table = load_dataset("text", data_files=source, split="train")
# `datasets` would use earlier results of the same MODEL folder, even if another model is in it now.
table = table.map(translate, batched=True, batch_size=500, num_proc=int(processes), load_from_cache_file=False)
with Path(output).open("w", encoding="utf-8", newline="\n") as lines:
    lines.writelines(f"{row['text']}\n" for row in table)
