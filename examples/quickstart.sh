#!/usr/bin/env bash
# All steps on the sample corpus, in a workspace: every command finds its files in nmtalign.toml.
# Usage: quickstart.sh FOLDER [options of `nmtalign train`]
set -euo pipefail
folder=$1
shift

nmtalign sample "$folder" --pairs "${PAIRS:-20000}"
cd -- "$folder"
nmtalign prep
nmtalign train "$@"
nmtalign translate < test.en > out.fr
nmtalign score out.fr --by-length
nmtalign align -o alignments.h5
nmtalign aer alignments.h5
nmtalign view alignments.h5 --sentence 0
