#!/usr/bin/env bash
# Runs each fuzz target for the given time, one after the other. What it finds is kept in testdata/fuzz and fails every later test run.
set -euo pipefail
time=${1:-20s}
grep -rl --include='*_test.go' '^func Fuzz' . | grep -v '^./benchmarks/' | xargs -n1 dirname | sort -u | while read -r dir; do
  cat "$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' | sort -u | while read -r target; do
    echo "fuzz $dir $target $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir" | tail -n 2
  done
done
