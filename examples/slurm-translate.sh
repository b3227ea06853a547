#!/usr/bin/env bash
#SBATCH --job-name=translate
#SBATCH --cpus-per-task=2
#SBATCH --time=04:00:00
# Translates a text with an array of Slurm jobs: job I translates block I of JOBS blocks of lines.
#
#   sbatch --array=1-16 slurm-translate.sh 16 MODEL INPUT OUTPUT [options of nmtalign translate]
#   cat OUTPUT.part-* > OUTPUT          # when all jobs are done: the lines of OUTPUT are those of INPUT
#
# Submit a job that was killed again, as in `sbatch --array=7 slurm-translate.sh 16 ...`: it continues after its last line,
# and a job that is done ends at once. For a table, give INPUT as JSON lines with "text" and any other keys, such as "id",
# and the options --set input_format=json --format json: the output has the other keys, too.
set -euo pipefail
jobs=$1 model=$2 input=$3 output=$4

part=$(printf '%s.part-%05d' "$output" "$SLURM_ARRAY_TASK_ID") # zeros keep the parts in order
nmtalign translate -m "$model" "$input" --shard "$SLURM_ARRAY_TASK_ID/$jobs" -o "$part" --resume \
    --threads "${SLURM_CPUS_PER_TASK:-1}" "${@:5}"
