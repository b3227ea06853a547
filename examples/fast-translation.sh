#!/usr/bin/env bash
# A large file, fast, by a script that may be killed at any moment: run again, it goes on after the last complete line.
# Usage: fast-translation.sh MODEL DATA INPUT OUTPUT [options of `nmtalign translate`]
#   DATA is the prepared corpus that MODEL was trained on. INPUT and OUTPUT may end in .gz.
set -euo pipefail
model=$1 data=$2 input=$3 output=$4
shift 4

lexicon=${data%/}.lexicon.txt # the words that may translate each source word; made once
[ -e "$lexicon" ] || nmtalign lexicon "$data" -o "$lexicon"

# OUTPUT.partial becomes OUTPUT when it is whole; where OUTPUT is whole already, this ends at once.
nmtalign translate "$input" -m "$model" -o "$output" --resume \
    --precision bf16 --lexicon "$lexicon" --candidates 1000 "$@"
