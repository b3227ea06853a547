"""Translates a table with the library `datasets`, in several processes of this machine.

Usage: python datasets_map.py MODEL INPUT.jsonl OUTPUT.jsonl PROCESSES

INPUT has one JSON object per line with the key "text". OUTPUT has the same objects in the same order, with the key
"translation" added. Install nmtalign[datasets] first.
"""

import sys

from datasets import load_dataset

from nmtalign import TranslateBatch

model, source, output, processes = sys.argv[1:]
table = load_dataset("json", data_files=source, split="train")
# `datasets` would use earlier results of the same MODEL folder, even if another model is in it now.
table = table.map(
    TranslateBatch(model, beam=5), batched=True, batch_size=500, num_proc=int(processes), load_from_cache_file=False
)
table.to_json(output, force_ascii=False)
