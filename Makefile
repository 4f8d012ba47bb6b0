# make test   installs what the tests need, then runs all of them: they check everything that the README promises
# make check  the same, and the linters
# make build  bin/drawgate

GO ?= go
# The programs that "make deps" installs.
export PATH := $(CURDIR)/.tools/envoy/bin:$(CURDIR)/.tools/traefik:$(PATH):/usr/sbin

# Separate modules, so that nobody downloads frameworks that they do not use.
MODULES := $(patsubst %/go.mod,%,$(wildcard httplimit/*/go.mod examples/*/go.mod gateway/*/go.mod deploy/*/go.mod taskqueue/*/go.mod web/*/go.mod))

# Packages whose tests do less under the race detector, because it is slow and allocates. Their tests run again without it.
FULL := . ./cmd/drawgate ./engine ./internal/calendar ./internal/model ./internal/record ./engine/rules ./server ./store/sqlitestore

# The servers that redisstore is tested with, in addition to the redis-server in the PATH.
SERVERS := redis-server valkey-server

# Leaves out symbol tables and debug information, which are a quarter of the program. Stack traces, profiles and the version
# do not need them.
LDFLAGS := -s -w
# The largest size that the program may have, in bytes.
MAX_SIZE := 52000000

.PHONY: build size run test check deps traefik lint words fuzz long bench

build:
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags='$(LDFLAGS)' -o bin/drawgate ./cmd/drawgate

size: build
	bin/drawgate version
	@size=$$(wc -c <bin/drawgate); echo "bin/drawgate: $$size bytes, at most $(MAX_SIZE)"; test $$size -le $(MAX_SIZE)

# The server on its embedded default: a SQLite file and a sample policy.
run: build
	bin/drawgate serve

deps:
	./tools/install.sh

# Traefik is needed only by "make long". Once it is installed, "make test" tests it as well.
traefik:
	./tools/traefik.sh

test: deps size
	$(GO) vet ./...
	./tools/test.sh -race ./...
	./tools/test.sh $(FULL)
	./tools/test.sh -run TestGuardedStore ./store/dynamostore
	for s in $(SERVERS); do export DRAWGATE_REDIS_SERVER=$(CURDIR)/.tools/redis/bin/$$s && $$DRAWGATE_REDIS_SERVER --version && \
		./tools/test.sh ./store/redisstore && ./tools/test.sh -run Redis ./store/guard || exit 1; done
	for m in $(MODULES); do (cd $$m && $(GO) vet ./... && $(GO) test ./...) || exit 1; done
	cd benchmarks && $(GO) vet ./... && $(GO) build ./... && $(GO) test ./cmd/report ./cmd/gatewaybench ./cmd/dynamobench ./internal/...
	./tools/fuzz.sh 10s

check: test lint words
	$(GO) mod tidy -diff
	for m in $(MODULES) benchmarks; do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

lint:
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...

# Plain words: retired identifiers and file names, wide comments, long commit subjects.
words:
	$(GO) -C tools test ./words
	$(GO) -C tools run ./words ..

# Longer versions of what "make test" does. Each prints what it did; keep the output of a run in docs/results.
fuzz:
	./tools/fuzz.sh 10m

long: traefik
	DRAWGATE_LONG=1 DRAWGATE_CRASH_ROUNDS=200 $(GO) test -count=1 -timeout=60m ./...
	cd taskqueue/asynqlimit && DRAWGATE_LONG=1 $(GO) test -count=1 -v -run TestFleet .
	cd web/browsertest && DRAWGATE_LONG=1 $(GO) test -count=1 -v -run Long ./...

bench:
	cd benchmarks && ./run.sh
