"""Translates a table with Ray Data, on a cluster or on this machine, and aligns the texts with their translations.

Usage: python ray_translate.py MODEL INPUT.parquet OUTPUT/

INPUT has a column "text". OUTPUT is a new folder of Parquet files with all columns of INPUT, "translation" and "links".
Each row comes back exactly once, even if workers die, but not in order: give the rows ids.
All machines must find MODEL, INPUT and OUTPUT at the same place, and have nmtalign[ray] installed. The
environment variable RAY_ADDRESS names a running cluster.
"""

import sys

import ray.data
from ray.data import SaveMode

from nmtalign import AlignBatch, TranslateBatch

model, source, output = sys.argv[1:]
table = ray.data.read_parquet(source)
table = table.repartition(target_num_rows_per_block=500)  # a worker takes 500 rows at a time
table = table.map_batches(TranslateBatch(model, beam=5), batch_size=None)
table = table.map_batches(AlignBatch(model, source_column="text", target_column="translation"), batch_size=None)
table.write_parquet(output, mode=SaveMode.ERROR)
