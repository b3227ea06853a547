"""Translates a table with Ray Data, on a cluster or on this machine.

Usage: python ray_translate.py MODEL INPUT.parquet OUTPUT/

INPUT has a column "text". OUTPUT is a new folder of Parquet files with all columns of INPUT, and "translation".
Each row comes back exactly once, even if workers die, but not in order: give the rows ids.
All machines must find MODEL, INPUT and OUTPUT at the same place, and have nmtalign[ray] installed. The
environment variable RAY_ADDRESS names a running cluster.
"""

import sys

import ray.data
from ray.data import SaveMode

from nmtalign import Translator

model, source, output = sys.argv[1:]
translator = Translator.load(model, beam=5, threads=1, alignments=False)  # each worker process loads it once


def translate(batch):
    return {**batch, "translation": [found.text for found in translator.translate(list(batch["text"]))]}


table = ray.data.read_parquet(source).repartition(target_num_rows_per_block=500)  # a worker takes 500 rows at a time
table.map_batches(translate, batch_size=None).write_parquet(output, mode=SaveMode.ERROR)
