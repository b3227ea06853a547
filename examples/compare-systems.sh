#!/usr/bin/env bash
# Does attention help, and for which sentences? Trains two models with equal budgets and compares them.
# Usage: compare-systems.sh FOLDER [options of `nmtalign train`]      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
cd -- "$1"
shift

[ -e data/corpus.h5 ] || nmtalign prep
nmtalign train data/ -o models/attention --attention additive --max-time 20s "$@"
nmtalign train data/ -o models/none --attention none --max-time 20s "$@"

for model in attention none; do
    nmtalign translate -m "models/$model" < test.en > "$model.fr"
done
compared=(attention=attention.fr none=none.fr -r test.fr -s test.en --by-length)
nmtalign score "${compared[@]}" -m models/attention --known-words --differences 3 --plot figure2.svg --html report.html
nmtalign score "${compared[@]}" --format csv > scores.csv

# For scripts: exit code 0 means good enough, 1 means below the limit, any other code means an error.
status=0
nmtalign score attention.fr -r test.fr --metrics bleu --fail-under "${LEAST:-10}" --format json > scores.json || status=$?
case $status in
    0) echo "good enough" ;;
    1) echo "not good enough yet" ;;
    *) exit "$status" ;;
esac
sed -n 's/^ *"value": \([0-9.]*\).*/BLEU \1/p' scores.json | head -n 1 # or: jq .systems[0].scores.BLEU.value
