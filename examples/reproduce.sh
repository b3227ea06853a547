#!/usr/bin/env bash
# The paper's experiment step by step, as `nmtalign reproduce` does it at once: four models under one budget, its tables and figures.
# Usage: reproduce.sh FOLDER [options of `nmtalign train`]      (FOLDER as made by `nmtalign sample`, or with your own nmtalign.toml)
set -euo pipefail
cd -- "$1"
shift

# Equal conditions: the same text, sizes, optimiser and updates; only the decoder and the longest sentence differ.
sizes=(--embedding 64 --hidden 128 --attention-hidden 128 --maxout 64 --output-rank 64)
training=(--optimizer adamw --learning-rate 0.002 --schedule linear --warmup 100 --loss-normalization tokens)
budget=(--batch-size 40 --max-updates "${UPDATES:-2000}" --patience 0 --validate-every "$((${UPDATES:-2000} / 10 + 1))")

[ -e data/corpus.h5 ] || nmtalign prep
mkdir -p reproduction
baseline=rnnencdec-50 # what the others are tested against
models=("$baseline" rnnencdec-30 rnnsearch-30 rnnsearch-50)
systems=() known=()
for model in "${models[@]}"; do
    nmtalign train data/ -o "reproduction/$model" --preset "$model" "${sizes[@]}" "${training[@]}" "${budget[@]}" "$@"
    # In the paper's first column <unk> may be written, one wrong word, and in its second never.
    translate=(nmtalign translate -m "reproduction/$model" --beam "${BEAM:-12}")
    "${translate[@]}" --allow-unk < test.en | sed 's/<unk>/UNK/g' > "reproduction/$model.fr"
    "${translate[@]}" < test.en > "reproduction/$model.known.fr"
    systems+=("$model=reproduction/$model.fr") known+=("$model=reproduction/$model.known.fr")
done

# Table 1 (its last column in the second call), and Figure 2 with its table: who is ahead, by how much, at which length.
nmtalign score "${systems[@]}" -r test.fr -s test.en --by-length --significance bs --confidence \
    --plot reproduction/figure2.png --html reproduction/scores.html
nmtalign score "${known[@]}" -r test.fr -s test.en --data data/ --table1 --significance bs --confidence

# Table 2: what the training took is in each train.jsonl; its last lines say updates, epochs, seconds and losses.
for model in "${models[@]}"; do
    tail -n 1 "reproduction/$model/train.jsonl"
done
nmtalign plot --training "${models[@]/#/reproduction/}" -o reproduction/curves.png

# Figure 3: where rnnsearch-50 looks while it is given the reference; and how far its links are from those made by hand.
nmtalign align test.en test.fr -m reproduction/rnnsearch-50 -o reproduction/alignments.h5
nmtalign plot reproduction/alignments.h5 --sentence 0 -o reproduction/figure3.png
if [ -e test.align ]; then
    nmtalign aer reproduction/alignments.h5 test.align
fi
