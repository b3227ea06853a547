#!/usr/bin/env bash
# Aligns the words of sentence pairs: soft weights in HDF5, hard links as text, the error rate, and a picture.
# Usage: align-bitext.sh FOLDER MODEL      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
model=$(cd -- "$2" && pwd)
cd -- "$1"

nmtalign align test.en test.fr -m "$model" -o alignments.h5 --pharaoh > test.links
nmtalign aer alignments.h5 test.align
nmtalign info alignments.h5
nmtalign view alignments.h5 --sentence 0-1 -o figure3.png
paste -d '\t' test.en test.fr test.links | sed -n 1,3p
