#!/bin/sh
# Checks the models: prints one line per run, with the expected and the actual verdict, and fails if they differ.
#
#   models/run.sh           all runs of runs.txt, and the enumerations in Python
#   models/run.sh --quick   those that take seconds: what "go test ./models" does
#   models/run.sh replay    the runs of one model
set -eu
cd "$(dirname "$0")"
[ $# -gt 0 ] || set -- ""
for program in spin gcc python3; do
  command -v $program >/dev/null || { echo "models: $program is missing: run tools/install.sh" >&2; exit 1; }
done
here=$PWD
export here

# one EXPECTED KIND SPEED MODEL FLAGS...: one run of Spin.
if [ "${1-}" = --one ]; then
  expected=$2 kind=$3 model=$5
  level=-O2
  [ "$4" = slow ] || level=-O0 # the compiler takes longer than the search
  shift 5
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  cp "$here/$model" "$dir/m.pml"
  cd "$dir"
  if [ "$kind" = live ]; then
    spin "$@" -DLIVE -a m.pml >log 2>&1 && gcc $level -DCOLLAPSE -DNFAIR=4 -DMEMLIM=4000 -o pan pan.c >log 2>&1
    search="-a -f -n -m2000000"
  else
    spin "$@" -a m.pml >log 2>&1 && gcc $level -DSAFETY -DCOLLAPSE -DMEMLIM=7000 -o pan pan.c >log 2>&1
    search="-n -m100000"
  fi
  # shellcheck disable=SC2086 # several words
  timeout 1500 ./pan $search >out 2>&1 || true
  got='?'
  if grep -q 'errors: 0$' out && ! grep -qiE 'max search depth too small|out of memory|pan: reached' out; then got=H; fi
  if grep -qE 'errors: [1-9]' out; then got=V; fi
  word=ok
  [ "$got" = "$expected" ] || word=MISMATCH
  states=$(awk '/states, stored/ {print $1; exit}' out)
  what=$(grep -E '^pan:1' out | head -1 | cut -c8-90) || true
  echo "$word expected=$expected got=$got $model $kind [$*] states=$states $what"
  [ $word = ok ] || { cat log; tail -20 out; }
  exit 0
fi

quick=
case ${1-} in
'') runs=$(grep -v '^#' runs.txt) ;;
--quick) quick=--quick runs=$(grep -v '^#' runs.txt | awk '$3 == "quick"') ;;
*) runs=$(grep -v '^#' runs.txt | grep " $1.pml") ;;
esac
out=$(mktemp)
trap 'rm -f "$out"' EXIT
# Two at a time; sorted as in runs.txt.
echo "$runs" | xargs -P 2 -L 1 ./run.sh --one | tee "$out"
case ${1-} in
'' | --quick)
  for enumeration in instances.py recover commute.py commit.py cold.py line.py; do
    echo "$enumeration"
    python3 -B $enumeration $quick | tee -a "$out"
  done
  ;;
esac
wanted=$(echo "$runs" | wc -l)
programs=0
[ -n "${1#--quick}" ] || programs=6
if grep -q MISMATCH "$out" || [ "$(grep -c '^ok expected=. got=. .*\.pml' "$out")" -ne "$wanted" ] ||
  [ "$(grep -c '^ALL AS EXPECTED' "$out")" -ne "$programs" ]; then
  echo "SOME RUNS ARE NOT AS EXPECTED"
  exit 1
fi
echo "ALL $wanted RUNS OF SPIN, AND $programs ENUMERATIONS, AS EXPECTED"
