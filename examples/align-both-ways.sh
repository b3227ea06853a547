#!/usr/bin/env bash
# The best word alignments without gold links: trains both directions together, combines them, then trains again,
# guided by the combined links.
# Usage: align-both-ways.sh FOLDER [options of nmtalign train]      (FOLDER contains data/ of `nmtalign prep`)
set -euo pipefail
cd -- "$1"
shift

nmtalign train data -o both "$@" --agreement
nmtalign align train.en train.fr --forward both --backward both/backward --pharaoh > train.links
nmtalign train data -o guided "$@" --agreement --init-from both --guided-alignment train.links
for name in both guided; do
    nmtalign align test.en test.fr --forward "$name" --backward "$name/backward" -o "$name.h5"
done
nmtalign aer both.h5 guided.h5 test.align --by-type
nmtalign plot both.h5 guided.h5 --sentence 0 --gold test.align -o both-ways.png
nmtalign view guided.h5 both.h5 --gold test.align -o both-ways.html
nmtalign export guided.h5 --format pharaoh > test.links
