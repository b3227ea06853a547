"""Translates a table with the library `datasets`, in several processes of this machine.

Usage: python datasets_map.py MODEL INPUT.jsonl OUTPUT.jsonl PROCESSES

INPUT has one JSON object per line with the key "text". OUTPUT has the same objects in the same order, with the key
"translation" added. Install nmtalign[datasets] first.
"""

import sys

from datasets import load_dataset

from nmtalign import Translator

model, source, output, processes = sys.argv[1:]
translator = Translator.load(model, beam=5, threads=1, alignments=False)  # each process loads it once


def translate(batch):
    return {"translation": [found.text for found in translator.translate(batch["text"])]}


table = load_dataset("json", data_files=source, split="train")
# `datasets` would use earlier results of the same MODEL folder, even if another model is in it now.
table = table.map(translate, batched=True, batch_size=500, num_proc=int(processes), load_from_cache_file=False)
table.to_json(output, force_ascii=False)
