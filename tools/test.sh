#!/bin/sh
# Runs the tests of the given packages (-race PACKAGES: under the race detector), in random order, and fails if one of them was skipped.
set -eu
out=$(mktemp)
trap 'rm -f "$out"' EXIT
status=0
go test -shuffle=on -count=1 -timeout=30m -v "$@" >"$out" 2>&1 || status=$?
grep -E '^(ok|FAIL|---|panic:)|^\?|^# |\[build failed\]|\[setup failed\]' "$out" | grep -v -E '^--- (PASS|SKIP)' || true
if [ "$status" -ne 0 ]; then
  echo "---- the failures, in full ----"
  grep -n -A15 -E '^ *FAIL: |^panic:|DATA RACE|\[build failed\]' "$out" | tail -n 400 || true
  # What a test said stands under its name, and long before the line that says that it failed.
  awk '
    /^=== (RUN|NAME|CONT|PAUSE) / { test = $3; next }
    /^ *--- (FAIL|PASS|SKIP): / {
      test = ""
      if ($2 == "FAIL:") { print; printf "%s", said[$3] }
      delete said[$3]
      next
    }
    test != "" { said[test] = substr(said[test] $0 "\n", 1, 20000) }
  ' "$out" | head -n 1000
  exit "$status"
fi
if grep -E '^ *--- SKIP' "$out"; then
  echo "tests were skipped: install what they need" >&2
  exit 1
fi
echo "$(grep -c -E '^ *--- PASS' "$out") passed, 0 failed, 0 skipped"
