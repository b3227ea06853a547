#!/usr/bin/env bash
# The paper's experiment step by step: four models with equal budgets, then the paper's tables and figures.
# `nmtalign reproduce` does the same with one command.
# Usage: reproduce.sh FOLDER [options of `nmtalign train`]
#   FOLDER is made by `nmtalign sample`, or contains your own nmtalign.toml.
set -euo pipefail
cd -- "$1"
shift

# Equal conditions: the same text, sizes, optimiser and updates; only the architecture and the longest sentence differ.
sizes=(--embedding 64 --hidden 128 --attention-hidden 128 --maxout 64 --output-rank 64)
training=(--optimizer adamw --learning-rate 0.002 --schedule linear --warmup 100 --loss-normalization tokens)
budget=(--batch-size 40 --max-updates "${UPDATES:-2000}" --patience 0 --validate-every "$((${UPDATES:-2000} / 10 + 1))")

[ -e data/corpus.h5 ] || nmtalign prep
mkdir -p reproduction
baseline=rnnencdec-50 # the system that the others are compared with
models=("$baseline" rnnencdec-30 rnnsearch-30 rnnsearch-50)
systems=() known=()
for model in "${models[@]}"; do
    nmtalign train data/ -o "reproduction/$model" --preset "$model" "${sizes[@]}" "${training[@]}" "${budget[@]}" "$@"
    # For the first column of Table 1, <unk> is allowed and counts as a wrong word. For the second it is not allowed.
    translate=(nmtalign translate -m "reproduction/$model" --beam "${BEAM:-12}")
    "${translate[@]}" --allow-unk < test.en | sed 's/<unk>/UNK/g' > "reproduction/$model.fr"
    "${translate[@]}" < test.en > "reproduction/$model.known.fr"
    systems+=("$model=reproduction/$model.fr") known+=("$model=reproduction/$model.known.fr")
done

# Table 1 (the second call gives its last column), and Figure 2: the scores by sentence length.
nmtalign score "${systems[@]}" -r test.fr -s test.en --by-length --significance bs --confidence \
    --plot reproduction/figure2.png --html reproduction/scores.html
nmtalign score "${known[@]}" -r test.fr -s test.en -m data/ --known-words --significance bs --confidence

# Table 2: the last line of each train.jsonl contains the updates, epochs, seconds and losses.
for model in "${models[@]}"; do
    tail -n 1 "reproduction/$model/train.jsonl"
done
nmtalign view "${models[@]/#/reproduction/}" -o reproduction/curves.png

# Figure 3: the attention weights of rnnsearch-50 for the reference translations, and their alignment error rate.
nmtalign align test.en test.fr -m reproduction/rnnsearch-50 -o reproduction/alignments.h5
nmtalign view reproduction/alignments.h5 --sentence 0 -o reproduction/figure3.png
if [ -e test.align ]; then
    nmtalign aer reproduction/alignments.h5 test.align
fi
