#!/usr/bin/env bash
# Translates a large file fast. The script may be killed at any moment: rerun it and it continues after the last line.
# Usage: fast-translation.sh MODEL SRC TGT INPUT OUTPUT [options of `nmtalign translate`]
#   MODEL reads words. SRC and TGT are texts from which a lexicon is learned. INPUT and OUTPUT may end in .gz.
set -euo pipefail
model=$1 src=$2 tgt=$3 input=$4 output=$5
shift 5

lexicon=aligner/lexicon.tsv # possible translations of each source word; made once
[ -e "$lexicon" ] || nmtalign link "$src" "$tgt" -o aligner/ > links.txt

# OUTPUT.partial is renamed to OUTPUT when it is complete. If OUTPUT is already complete, the command ends at once.
nmtalign translate "$input" -m "$model" -o "$output" --resume \
    --lexicon "$lexicon" --set precision=auto "$@"
