#!/usr/bin/env bash
# Translates a large file fast. The script may be killed at any moment: rerun it and it continues after the last line.
# Usage: fast-translation.sh MODEL DATA INPUT OUTPUT [options of `nmtalign translate`]
#   DATA is the prepared corpus that MODEL was trained on. INPUT and OUTPUT may end in .gz.
set -euo pipefail
model=$1 data=$2 input=$3 output=$4
shift 4

lexicon=${data%/}.lexicon.txt # possible translations of each source word; made once
[ -e "$lexicon" ] || nmtalign lexicon "$data" -o "$lexicon"

# OUTPUT.partial is renamed to OUTPUT when it is complete. If OUTPUT is already complete, the command ends at once.
nmtalign translate "$input" -m "$model" -o "$output" --resume \
    --precision auto --lexicon "$lexicon" --candidates 1000 "$@"
