#!/usr/bin/env bash
# Word alignments of a bitext as data: HDF5 with the soft weights, Pharaoh links, error rate against gold links.
# Usage: align-bitext.sh FOLDER MODEL      (FOLDER as made by `nmtalign sample`)
set -euo pipefail
model=$(cd -- "$2" && pwd)
cd -- "$1"

nmtalign align test.en test.fr -m "$model" -o alignments.h5 --pharaoh --gold test.align > test.links
nmtalign info alignments.h5
nmtalign plot alignments.h5 --sentence 0 --sentence 1 -o figure3.png
paste -d '\t' test.en test.fr test.links | sed -n 1,3p
