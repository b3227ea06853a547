#!/usr/bin/env bash
# Does attention help, and for which sentences? Trains two models with equal budgets and compares them.
# Usage: compare-systems.sh FOLDER [options of `nmtalign train`]      (FOLDER is made by `nmtalign sample`)
set -euo pipefail
cd -- "$1"
shift

[ -e data/corpus.h5 ] || nmtalign prep
for attention in additive none; do
    nmtalign train data/ -o "models/$attention" --set attention=$attention --max-time 20s "$@"
    nmtalign translate -m "models/$attention" < test.en > "$attention.fr"
done
systems=(attention=additive.fr none=none.fr -r test.fr -s test.en)
nmtalign score "${systems[@]}" --by-length --known-words -m models/additive --differences 3 --plot figure2.svg --html report.html
nmtalign score "${systems[@]}" --by-length --format csv > scores.csv

# For scripts: exit code 0 means good enough, 1 means below the limit, any other code means an error.
status=0
nmtalign score additive.fr -r test.fr --metrics bleu --fail-under "${LEAST:-10}" || status=$?
case $status in
    0) echo "good enough" ;;
    1) echo "not good enough yet" ;;
    *) exit "$status" ;;
esac
