package drawgate_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/drawgate/drawgate"

var grpcs = []string{
	"google.golang.org/grpc", "google.golang.org/protobuf",
	"google.golang.org/genproto/googleapis/rpc",
}

// rules say what the packages of this module may import of each other and of others' modules; the
// standard library is free for all, and so is internal/pattern, which delays a part of it. The
// longest prefix of the package's path decides. Imports point
// inward: cmd → interfaces, config → telemetry → engine → drawgate and the stores → store →
// internal.
var rules = map[string]struct{ own, others []string }{
	"": {own: []string{
		"store", "internal/record", "internal/queue", "internal/cells",
		"internal/ending", "internal/money", "internal/sleep",
	}},
	"api":                 {},
	"internal/calendar":   {},
	"internal/drain":      {},
	"internal/money":      {},
	"internal/ending":     {},
	"internal/queue":      {},
	"internal/record":     {own: []string{"internal/calendar"}},
	"internal/cells":      {own: []string{"internal/record"}},
	"internal/localtest":  {own: []string{"store", "internal/cells", "internal/record"}},
	"internal/model":      {own: []string{"store", "internal/record"}},
	"internal/linetest":   {own: []string{"", "store"}},
	"internal/needs":      {},
	"internal/pattern":    {},
	"internal/pipetest":   {},
	"internal/outbox":     {own: []string{"internal/sleep"}},
	"internal/recorded":   {own: []string{"store"}},
	"internal/redistest":  {own: []string{"internal/needs"}, others: []string{"github.com/redis/rueidis"}},
	"internal/celerytest": {own: []string{"internal/needs", "internal/redistest"}},
	"internal/owned":      {own: []string{"", "store"}},
	"internal/regular":    {},
	"internal/storekey":   {own: []string{"store"}},
	"internal/journal":    {own: []string{"store", "internal/record"}},
	"internal/awsbody":    {others: []string{"github.com/aws/smithy-go"}},
	"internal/awstest":    {own: []string{"", "internal/needs", "internal/redistest"}},
	"internal/lambdaext":  {},
	"internal/lambdatest": {own: []string{
		"", "config", "internal/awstest", "internal/redistest", "internal/syncbuffer",
		"llm/simulator", "store/dynamostore",
	}},
	"internal/pgtest": {
		own: []string{"internal/needs", "internal/redistest"}, others: []string{"github.com/jackc/pgx"},
	},
	"store":           {own: []string{"internal/calendar", "internal/record"}},
	"store/storetest": {own: []string{"", "internal/calendar"}},
	"store/lease":     {own: []string{"store"}},
	"store/memstore":  {own: []string{"store", "internal/cells", "internal/record"}},
	"store/sqlitestore": {
		own: []string{"store", "internal/journal", "internal/record"}, others: []string{"modernc.org/sqlite"},
	},
	"store/redisstore": {
		own:    []string{"store", "internal/record", "internal/storekey"},
		others: []string{"github.com/redis/rueidis"},
	},
	"store/dynamostore": {
		own:    []string{"store", "internal/awsbody", "internal/record", "internal/storekey"},
		others: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
	},
	"store/pgstore": {
		own: []string{
			"store", "internal/journal", "internal/record", "internal/storekey",
			"store/pgstore/internal/pg",
		},
		others: []string{"github.com/jackc/pgx/v5/pgconn"},
	},
	"store/pgstore/internal/pg": { // pgx's types would make each program 3 MB larger
		others: []string{"github.com/jackc/pgx/v5/pgconn", "github.com/jackc/puddle"},
	},
	"llm":          {own: []string{""}},
	"engine/rules": {own: []string{""}, others: []string{"github.com/expr-lang/expr"}},
	"engine": {own: []string{
		"", "internal/cells", "engine/rules", "internal/credit", "internal/shadow", "internal/similar",
		"internal/sleep",
	}},
	"internal/credit": {own: []string{"store"}},
	"internal/ledger": {own: []string{"store", "internal/record", "internal/failure"}},
	"store/guard": {
		own: []string{
			"", "internal/ledger", "internal/record", "internal/breaker", "internal/instances",
			"internal/shadow",
		},
	},
	"internal/shadow":     {},
	"internal/sampler":    {},
	"internal/similar":    {},
	"internal/sleep":      {},
	"internal/syncbuffer": {},
	"internal/yamltext":   {others: []string{"github.com/goccy/go-yaml"}},
	"internal/breaker":    {},
	"internal/hold":       {own: []string{""}},
	"internal/instances":  {own: []string{"store"}},
	"internal/failure":    {own: []string{""}},
	"internal/fromlitellm": {
		own: []string{"internal/yamltext", "llm"}, others: []string{"github.com/goccy/go-yaml"},
	},
	"internal/present": {own: []string{
		"", "api", "engine", "engine/rules", "internal/failure", "internal/money", "spend", "store",
	}},
	"internal/top": {
		own:    []string{"api", "internal/present"},
		others: []string{"charm.land/bubbletea/v2", "github.com/charmbracelet/x"},
	},
	"internal/admit": {own: []string{"", "engine", "engine/rules", "internal/failure", "internal/hold"}},
	"httplimit": {own: []string{
		"", "internal/calendar", "engine", "engine/rules", "internal/admit",
		"internal/failure", "internal/hold",
	}},
	"httplimit/httplimittest": {own: []string{"", "httplimit", "store/memstore"}},
	"grpclimit": {own: []string{
		"", "engine", "engine/rules", "internal/admit", "internal/hold",
		"internal/failure",
	}, others: grpcs},
	"rls": {
		own: []string{
			"", "engine", "engine/rules", "httplimit", "internal/regular",
			"internal/sleep", "internal/yamltext", "internal/failure", "internal/sampler",
		},
		others: append(grpcs, "github.com/envoyproxy/go-control-plane/envoy", "github.com/goccy/go-yaml"),
	},
	"outbound": {own: []string{
		"", "engine", "engine/rules", "internal/ending", "internal/hold",
		"internal/sleep", "llm",
	}},
	"spend": {
		own:    []string{"", "audit", "internal/sampler", "llm", "store"},
		others: []string{"golang.org/x/sync"},
	},
	"virtualkey": {own: []string{"api", "internal/present", "internal/sampler", "store"}},
	"gateway": {own: []string{
		"", "api", "engine", "engine/rules", "httplimit", "internal/admit",
		"internal/drain", "internal/ending", "internal/failure", "internal/money", "internal/owned",
		"internal/present", "internal/sampler", "llm",
		"outbound", "spend", "web",
	}, others: []string{"github.com/go-jose/go-jose", "golang.org/x/sync"}},
	"incident": {own: []string{
		"", "api", "internal/outbox", "internal/regular", "internal/sampler",
		"llm", "outbound",
	}},
	"audit":            {},
	"audit/ledgerfile": {own: []string{"", "audit", "llm", "outbound"}},
	"telemetry": {own: []string{
		"", "api", "engine", "internal/outbox", "internal/sleep", "llm",
		"outbound", "store/guard", "internal/failure", "internal/sampler",
	}, others: []string{"github.com/prometheus"}},
	"telemetry/cloudwatch": {own: []string{
		"", "internal/awsbody", "internal/outbox", "internal/sampler", "outbound",
		"store/dynamostore", "store/guard",
	}, others: []string{
		"github.com/aws/aws-sdk-go-v2",
		"github.com/aws/smithy-go",
	}},
	"telemetry/promtest": {own: []string{"internal/needs"}},
	"telemetry/snsnotify": {
		own:    []string{"api", "internal/awsbody", "internal/outbox", "internal/sampler"},
		others: []string{"github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go"},
	},
	"config": {
		own: []string{
			"", "api", "engine", "engine/rules", "internal/calendar", "internal/owned", "internal/regular",
			"internal/similar",
			"internal/yamltext", "llm", "outbound", "store/guard", "store/dynamostore", "store/lease", "store/memstore",
			"store/pgstore", "store/redisstore", "store/sqlitestore", "spend", "telemetry", "telemetry/cloudwatch",
			"telemetry/snsnotify",
		},
		others: []string{
			"github.com/goccy/go-yaml", "github.com/fsnotify/fsnotify",
			"github.com/prometheus/client_golang",
		},
	},
	"taskqueue":              {others: []string{"github.com/redis/rueidis", "github.com/rabbitmq/amqp091-go"}},
	"taskqueue/queuemetrics": {others: []string{"github.com/prometheus/client_golang"}},
	"llm/simulator":          {},
	"server": {own: []string{
		"", "api", "engine", "engine/rules", "httplimit", "internal/drain", "internal/regular",
		"internal/failure", "internal/present", "internal/sampler", "internal/similar", "spend", "virtualkey", "web",
	}},
	"web":    {},
	"client": {own: []string{"api", "internal/ending", "internal/sleep"}},
	"cmd/drawgate": {
		own: []string{
			"", "api", "audit", "audit/ledgerfile", "client", "config", "engine", "gateway", "incident", "llm",
			"llm/simulator", "outbound", "store/guard", "httplimit", "internal/credit", "internal/fromlitellm",
			"internal/lambdaext", "internal/money", "internal/similar",
			"internal/sleep", "store/memstore", "rls", "engine/rules", "server", "spend", "store/dynamostore",
			"store/pgstore", "store/sqlitestore", "internal/failure", "internal/present", "internal/top", "taskqueue",
			"taskqueue/queuemetrics", "virtualkey",
		},
		others: append(grpcs, "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/mattn/go-isatty",
			"github.com/charmbracelet",
			"charm.land/bubbletea/v2"),
	},
	"deploy": {},
	"examples": {own: []string{
		"", "api", "client", "engine", "server", "store/memstore", "store/sqlitestore",
		"store/redisstore",
	}},
}

// TestImports holds the import rule. A new arrow in ARCHITECTURE.md's picture is a design change:
// say why in docs/design.md.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`,
		"./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, imports, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg = within(pkg)
		for imp := range strings.FieldsSeq(imports) {
			if first, _, _ := strings.Cut(imp, "/"); !strings.Contains(first, ".") {
				continue // standard library
			}
			if !allowed(pkg, imp) {
				t.Errorf("package %q imports %q, which the rule does not allow", pkg, imp)
			}
		}
	}
}

// TestOnlyItsStoreLinksPgx: a program links the clients of the stores that it uses, and no others.
func TestOnlyItsStoreLinksPgx(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}} {{join .Deps " "}}`,
		".", "./store/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		pkg, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		if got, want := strings.Contains(deps, "github.com/jackc/"),
			strings.HasPrefix(within(pkg), "store/pgstore"); got != want {
			t.Errorf("%s links pgx: %v, want %v", pkg, got, want)
		}
	}
}

// within returns a package's path inside this module.
func within(path string) string { return strings.TrimPrefix(strings.TrimPrefix(path, module), "/") }

func allowed(pkg, imp string) bool {
	prefix := pkg
	r, ok := rules[prefix]
	for !ok && prefix != "" {
		prefix = prefix[:max(0, strings.LastIndex(prefix, "/"))]
		r, ok = rules[prefix]
	}
	if imp == module || strings.HasPrefix(imp, module+"/") {
		imp = within(imp)
		if imp == "internal/pattern" {
			return true
		}
		if prefix != "" && strings.HasPrefix(imp, prefix+"/") {
			return true // its own parts
		}
		// the contract, which is part of the library
		return slices.Contains(r.own, imp) || imp == "store" && slices.Contains(r.own, "")
	}
	for _, o := range r.others {
		if imp == o || strings.HasPrefix(imp, o+"/") {
			return true
		}
	}
	return false
}

// TestPackagesFromPyPIAreHashed: what the tests run is what was looked at once, whoever owns the
// package by now.
func TestPackagesFromPyPIAreHashed(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("tools/*.sh")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	installs := 0
	for _, path := range scripts {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.Contains(line, "pip install") {
				continue
			}
			installs++
			if !strings.Contains(line, "--require-hashes") || !strings.Contains(line, "--only-binary :all:") {
				t.Errorf("%s installs without hashes, or what it has to build: %s", path, line)
			}
		}
	}
	if installs == 0 {
		t.Error("nothing is installed from PyPI any more: remove this test")
	}
}

// TestPackagesFromNpmAreHashed: as TestPackagesFromPyPIAreHashed. The list names no addresses, so
// that a machine can use its own mirror.
func TestPackagesFromNpmAreHashed(t *testing.T) {
	t.Parallel()
	lists, err := filepath.Glob("tools/*/package-lock.json")
	if err != nil || len(lists) < 2 {
		t.Fatalf("found %v, %v", lists, err)
	}
	for _, path := range lists {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var lock struct {
			Packages map[string]struct{ Version, Integrity, Resolved string }
		}
		if err := json.Unmarshal(text, &lock); err != nil {
			t.Fatal(err)
		}
		if len(lock.Packages) < 2 {
			t.Errorf("%s: nothing is installed any more: remove it", path)
		}
		for name, p := range lock.Packages {
			if name != "" && (p.Version == "" || !strings.HasPrefix(p.Integrity, "sha512-") || p.Resolved != "") {
				t.Errorf("%s: %s: %+v, want a version and a hash, and no address", path, name, p)
			}
		}
	}
	script, err := os.ReadFile("tools/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), "npm-cli.js ci --ignore-scripts") {
		t.Error("install.sh does not install what is listed, and nothing else, without running scripts")
	}
}
