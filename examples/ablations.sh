#!/usr/bin/env bash
# What each part of RNNsearch contributes: one training for each row of a table of settings, all with the same budget.
# Usage: ablations.sh FOLDER [options of `nmtalign train`]
#   FOLDER is made by `nmtalign sample`, or contains your own nmtalign.toml. Each row: a name, and settings that differ.
set -euo pipefail
cd -- "$1"
shift
[ -e data/corpus.h5 ] || nmtalign prep
systems=()
while read -r name settings; do
    [ -n "$name" ] || continue
    # shellcheck disable=SC2086  # every setting is an option
    nmtalign train data/ -o "ablations/$name" --preset tiny --epochs 0 --max-time '' --max-updates "${UPDATES:-2000}" \
        ${settings:+$(printf -- '--set %s ' $settings)} "$@" < /dev/null
    nmtalign translate -m "ablations/$name" < test.en > "ablations/$name.fr"
    systems+=("$name=ablations/$name.fr")
done <<< "${ROWS:-
rnnsearch
encoder-forward    bidirectional=false
fixed-vector       attention=none bidirectional=false
fixed-twice-wide   attention=none bidirectional=false hidden=256
source-reversed    attention=none bidirectional=false reverse_source=true
score-dot          attention=dot
score-general      attention=general
attention-marginal attention_kind=marginal
attention-hard     attention_kind=hard
update-first       order=look-update-generate
cell-paper         cell=paper
readout-state-only readout_previous_word=false
output-factored    output_rank=64}"
nmtalign score "${systems[@]}" -r test.fr -s test.en --by-length # p is against the first row
