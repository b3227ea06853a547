"""Translates a table with Spark, on all executors of a cluster or on this machine.

Usage: spark-submit spark_translate.py MODEL INPUT.parquet OUTPUT/

INPUT has a column "text". OUTPUT is a new folder of Parquet files with all columns of INPUT, and "translation".
Each row comes back exactly once, even if workers die, but not in order: give the rows ids.
All machines must find MODEL, INPUT and OUTPUT at the same place, and have nmtalign[spark] installed.
"""

import sys

from pyspark.sql import SparkSession

from nmtalign import Translator

model, source, output = sys.argv[1:]
translator = Translator.load(model, beam=5, threads=1, alignments=False)  # each worker process loads it once


def translate(frames):
    for frame in frames:
        yield frame.assign(translation=[found.text for found in translator.translate(frame["text"].tolist())])


spark = SparkSession.builder.getOrCreate()
table = spark.read.parquet(source).repartition(10 * spark.sparkContext.defaultParallelism)
schema = ", ".join([*(f"`{name}` {kind}" for name, kind in table.dtypes), "translation string"])
table.mapInPandas(translate, schema).write.parquet(output)
spark.stop()
