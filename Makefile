# make quick  the tests that need no other program than Go, in their short form: a few minutes
# make test   installs what the tests need, then runs all of them: they check everything that the README promises
# make long   larger forms of the same tests, and fuzzing: hours
# make check  make test, and the linters
# make build  bin/drawgate
# make release  what a release consists of, in dist: see docs/install.md

GO ?= go
# The programs that "make deps" installs.
export PATH := $(CURDIR)/.tools/envoy/bin:$(CURDIR)/.tools/traefik:$(PATH):/usr/sbin

# Separate modules, so that nobody downloads frameworks that they do not use. That of deploy/helm takes minutes to compile: it is for "make long".
MODULES := $(patsubst %/go.mod,%,$(filter-out deploy/helm/go.mod,$(wildcard httplimit/*/go.mod examples/*/go.mod gateway/*/go.mod deploy/*/go.mod taskqueue/*/go.mod web/*/go.mod)))

# The servers that redisstore is tested with, in addition to the redis-server in the PATH.
SERVERS := redis-server valkey-server

# Leaves out symbol tables and debug information, which are a quarter of the program. Stack traces, profiles and the version
# do not need them.
LDFLAGS := -s -w
# Leaves out the traces of gRPC, which are pages that nothing serves here.
TAGS := grpcnotrace
# The largest size that the program may have, in bytes.
MAX_SIZE := 55600000

# For the compiler.
FEW_GC := GOGC=off GOMEMLIMIT=1GiB
# What is compiled only for tests needs no debug information, and is quicker with one thread for each package.
GCFLAGS := '-gcflags=all=-dwarf=false -c=1'
# For "make quick". Without inlining the commands of rueidis take a third less to compile, and the other code named here a fifth; but
# where it has to work, in "make test", it is slower. Nor do tests count allocations in what is named here of ours.
NO_INLINING := github.com/redis github.com/aws github.com/getkin github.com/jackc github.com/envoyproxy \
	$(addprefix github.com/drawgate/drawgate/,audit cmd config deploy examples gateway incident llm outbound rls store)

# The systems that the tests do not run on: all code and all tests are compiled for them.
PLATFORMS := windows/amd64 windows/arm64 darwin/amd64 darwin/arm64

.PHONY: build size run quick test test-race test-later test-rest test-plain test-servers test-modules check deps testtools traefik lint words mutants fuzz platforms release test-release long bench

build:
	CGO_ENABLED=0 $(GO) build -trimpath -tags '$(TAGS)' -ldflags='$(LDFLAGS)' -o bin/drawgate ./cmd/drawgate

size: build
	bin/drawgate version
	@size=$$(wc -c <bin/drawgate); echo "bin/drawgate: $$size bytes, at most $(MAX_SIZE)"; test $$size -le $(MAX_SIZE)

# VERSION, TARGETS (such as linux/amd64) and DOWNLOAD (the address that will have the files) may be given.
release:
	rm -rf dist
	$(GO) -C release run . -version '$(VERSION)' -targets '$(TARGETS)' -download '$(DOWNLOAD)' -tags '$(TAGS)' -ldflags='$(LDFLAGS)'

# The server on its embedded default: a SQLite file and a sample policy.
run: build
	bin/drawgate serve

deps:
	./tools/install.sh

# Traefik is needed only by "make long". Once it is installed, "make test" tests it as well.
traefik:
	./tools/traefik.sh

# The compiler has more to do here than the tests. It is quicker without debug information and without C, by a sixth if its garbage
# collector runs only when it uses much memory, and with one thread for each package. More packages at a time than processors,
# because some tests wait; those that wait longest go first. tools/quick.sh says what vet leaves out.
quick: export GOFLAGS += -ldflags=-s $(GCFLAGS) $(NO_INLINING:%='-gcflags=%/...=-dwarf=false -c=1 -l')
quick:
	MODCACHE=$$($(GO) env GOMODCACHE) STD=$$($(GO) env GOROOT)/src CGO_ENABLED=0 $(FEW_GC) \
		$(GO) test -short -vet=all -toolexec='$(CURDIR)/tools/quick.sh' -p $$(($$(getconf _NPROCESSORS_ONLN) * 2)) \
		./cmd/drawgate ./server ./telemetry ./store/... ./...

# testlog judges the output of tests; concurrent finds the packages in which goroutines meet, for the race detector.
testtools:
	$(GO) -C tools test ./testlog ./concurrent
	$(GO) -C tools build -o ../bin/ ./testlog ./concurrent

# Tests that run the program drawgate use the one that "make size" has built. Three at a time: much of the rest waits for
# other programs. What failed in any of them is said again at the end. The flags are those of "make build", and hold for what tests
# build as well, so that packages are compiled once.
test: export CGO_ENABLED = 0
test: export GOFLAGS += -trimpath -tags=$(TAGS)
test: export DRAWGATE_TEST_PROGRAM = $(CURDIR)/bin/drawgate
test: deps testtools
	+$(FEW_GC) $(MAKE) --no-print-directory size
	$(FEW_GC) $(GO) vet ./...
	bin/concurrent -later >bin/later
	rm -f bin/failed
	+$(MAKE) --no-print-directory -k -j3 -Otarget test-race test-rest test-modules || { echo; echo "What failed:"; cat bin/failed 2>/dev/null; exit 1; }

# The longest ones first: they wait for much, and the others use the processors meanwhile.
test-race:
	TESTLOG='-later bin/later -slowest 20' ./tools/test.sh -race $(GCFLAGS) -gcflags='modernc.org/...=-race=false -dwarf=false -c=1' \
		./cmd/drawgate ./store/redisstore ./gateway $$(bin/concurrent)

test-rest: test-plain test-servers

test-plain:
	./tools/test.sh $$(bin/concurrent -not)

# What other servers could do otherwise: the script, its functions, and the kinds of their errors. What is about our own
# processes and connections is the same on each. "make long" leaves nothing out.
test-servers: test-plain
	for s in $(SERVERS); do export DRAWGATE_REDIS_SERVER=$(CURDIR)/.tools/redis/bin/$$s && $$DRAWGATE_REDIS_SERVER --version && \
		./tools/test.sh -run '^Test(Store|ServerClock|Same.*|Functions.*|KindsOfFaults|Versions|Generations|PromotedReplica|MissingPermissions|RightsOn.*|Peers12.*|DataLost|SlotsMove|ServerIsFull|RecordsOfEarlierVersions|BesideTheVersionBefore)$$' ./store/redisstore -rapid.checks=10 || exit 1; done

test-modules: test-later
	for m in $(MODULES); do (cd $$m && $(FEW_GC) $(GO) vet ./... && $(CURDIR)/tools/test.sh ./...) || exit 1; done
	cd benchmarks && export $(FEW_GC) && $(GO) vet ./... && $(GO) build ./... && $(CURDIR)/tools/test.sh ./cmd/report ./cmd/gatewaybench ./cmd/dynamobench ./cmd/postgresbench ./internal/...

# Tests that leave themselves to a run without the race detector. The detector does not look into
# SQLite, which was translated from C and is five times as slow under it.
test-later:
	./tools/test.sh $$(cat bin/later)

# What the release command is made with takes half a minute to compile, so "make test" leaves it out.
test-release: testtools
	cd release && $(GO) vet ./... && $(CURDIR)/tools/test.sh ./...

check: test test-release lint words
	$(GO) mod tidy -diff
	for m in $(MODULES) deploy/helm benchmarks release; do (cd $$m && $(GO) mod tidy -diff) || exit 1; done

lint: deps
	$(GO) tool -modfile=tools/go.mod golangci-lint run ./...
	cd python && export RUFF_NO_CACHE=true && for c in "ruff check" "ruff format --check" mypy; do ../.tools/python/bin/$$c || exit 1; done

# Plain words: retired identifiers and file names, wide comments, long commit subjects.
words:
	$(GO) -C tools test ./words
	$(GO) -C tools run ./words ..

# Changes the code in many places, one at a time, and checks that a test fails for each: half an hour.
mutants: deps
	$(GO) -C tools test ./mutants
	$(GO) -C tools run ./mutants ..

# Longer versions of what "make test" does. Each prints what it did; keep the output of a run in docs/results.
fuzz:
	./tools/fuzz.sh 10m

platforms:
	for p in $(PLATFORMS); do export CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/}; echo $$p; \
		for m in . $(MODULES); do (cd $$m && $(GO) vet ./...) || exit 1; done; done

long: traefik fuzz mutants platforms
	DRAWGATE_LONG=1 DRAWGATE_CRASH_ROUNDS=200 $(GO) test -count=1 -timeout=60m -tags long ./...
	cd taskqueue/asynqlimit && DRAWGATE_LONG=1 $(GO) test -count=1 -v -run TestFleet .
	cd web/browsertest && DRAWGATE_LONG=1 $(GO) test -count=1 -v -tags long -run Long ./...
	./tools/release.sh
	cd deploy/helm && $(GO) vet ./... && $(GO) test -count=1 -v -timeout=60m ./...
	cd release && $(GO) test -count=1 -v -timeout=90m -tags long ./...
	for s in $(SERVERS); do export DRAWGATE_REDIS_SERVER=$(CURDIR)/.tools/redis/bin/$$s && $$DRAWGATE_REDIS_SERVER --version && \
		$(GO) test -count=1 -timeout=60m ./store/redisstore && $(GO) test -count=1 -run Redis ./store/guard || exit 1; done

bench:
	cd benchmarks && ./run.sh
