"""Translates a table with Spark, on all executors of a cluster or on this machine.

Usage: spark-submit spark_translate.py MODEL INPUT.parquet OUTPUT/

INPUT has a column "text". OUTPUT is a new folder of Parquet files with all columns of INPUT, and "translation".
Each row comes back exactly once, even if workers die, but not in order: give the rows ids.
All machines must find MODEL, INPUT and OUTPUT at the same place, and have nmtalign[spark] installed.
"""

import sys
from collections.abc import Iterator

import pandas
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from nmtalign import TranslateBatch

model, source, output = sys.argv[1:]
translate = TranslateBatch(model, beam=5)


def translate_frames(frames: Iterator[pandas.DataFrame]) -> Iterator[pandas.DataFrame]:
    for frame in frames:
        yield pandas.DataFrame(translate(frame))


spark = SparkSession.builder.getOrCreate()
table = spark.read.parquet(source).repartition(10 * spark.sparkContext.defaultParallelism)
schema = StructType([*table.schema, StructField("translation", StringType())])
table.mapInPandas(translate_frames, schema).write.parquet(output)
spark.stop()
