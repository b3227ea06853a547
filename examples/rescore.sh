#!/usr/bin/env bash
# Rescoring: one model writes n-best lists, and another model, or both together, choose the best translation.
# Usage: rescore.sh MODEL OTHER SOURCE REFERENCE
#   OTHER may have another vocabulary, because the lists contain raw text.
set -euo pipefail
model=$1 other=$2 source=$3 reference=$4

nmtalign translate "$source" -m "$model" --n-best 12 -o nbest.txt
nmtalign translate --n-best-list nbest.txt "$source" -m "$other" --rescore -o rescored.txt

# The first entry of each sentence is the best one. Both models together: the best sum of LogProb= and nmtalign= per word.
first() { awk -F ' [|][|][|] ' '!seen[$1]++ { print $2 }' "$1"; }
both() {
    awk -F ' [|][|][|] ' '
        { split($3, f, " "); score = (f[2] + f[6]) / f[4] }
        !($1 in best) || score > best[$1] { best[$1] = score; text[$1] = $2 }
        END { for (i = 0; i in best; i++) print text[i] }' "$1"
}
echo "model" && first nbest.txt | nmtalign score - -r "$reference"
echo "other" && first rescored.txt | nmtalign score - -r "$reference"
echo "both" && both rescored.txt | tee both.txt | nmtalign score - -r "$reference"
