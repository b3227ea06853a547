#!/usr/bin/env bash
# What a machine with a GPU is to show, in parts of less than nine minutes. No network and no installation: Python
# finds this checkout's modules; pytest, hypothesis and the packages that nmtalign requires must be there.
#
# Usage: tests/bench/card.sh check OUT          results against float64, the tests of a GPU, and the speeds of updates
#        tests/bench/card.sh translate OUT      sentences per second, greedily and with beam 5
#        tests/bench/card.sh train OUT TEXTS    a training, and the BLEU of its translations; TEXTS contains train,
#                                               val and test_2016_flickr in .en and .fr
# OUT receives logs and results. DEVICE=cpu rehearses the same at tiny sizes; TIME=2m trains for two minutes, not five.
set -uo pipefail
part=$1 out=$(mkdir -p "$2" && cd "$2" && pwd) texts=${3:+$(cd "$3" && pwd)}
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
device=${DEVICE:-cuda} failed=0

# Runs a command, shows and logs its output, and continues if it fails: the other results are still of use.
step() {
    local name=$1
    shift
    echo "== $name: $*"
    SECONDS=0
    "$@" 2>&1 | tee "$out/$name.log" || failed=1
    echo "== $name: $SECONDS s"
}

if [ "$part" = check ]; then
    sizes=(--size paper,small,gnmt,transformer-tiny --batches 80,640)
    [ "$device" = cuda ] || sizes=()
    # Interrupted after 300 seconds, pytest still reports what has failed until then.
    mapfile -t marked < <(grep -rl --include='test_*.py' '[.]mark[.]gpu' tests)
    step tests timeout -s INT -k 20 300 python3 -m pytest -p no:benchmark -p no:cacheprovider -W ignore::pytest.PytestConfigWarning -m gpu --durations 10 "${marked[@]}"
    step updates python3 tests/bench gpu --device "$device" "${sizes[@]}" --json "$out/updates.json"
elif [ "$part" = translate ]; then
    size=(--size paper --variants ours-bf16,ours-fp32 --beam 1,5 --sentences 1024)
    [ "$device" = cuda ] || size=(--size tiny --variants ours-fp32 --beam 1 --sentences 4 --length 3)
    step translate python3 tests/bench translate --device "$device" "${size[@]}" --json "$out/translate.json"
else
    dev=("$texts/val.en" "$texts/val.fr") test=$texts/test_2016_flickr
    command=(python3 -m nmtalign)
    step prep "${command[@]}" prep "$texts/train.en" "$texts/train.fr" --dev "${dev[@]}" --subwords -o "$out/data"
    step train "${command[@]}" train "$out/data" -o "$out/model" --max-time "${TIME:-5m}" --device "$device" --seed 1
    step translation "${command[@]}" translate -m "$out/model" --device "$device" "$test.en" -o "$out/test.fr"
    step score "${command[@]}" score "$out/test.fr" -r "$test.fr"
fi
exit $failed
