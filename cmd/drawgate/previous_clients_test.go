//go:build unix && long

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/client"
	"github.com/drawgate/drawgate/internal/needs"
)

// newClientOldServer asks a previous server everything that today's client can ask.
func newClientOldServer(t *testing.T, p previous) {
	t.Helper()
	b := &both{t: t, p: p, config: fmt.Sprintf(bothPolicies(), onSQLite(t, p))}
	s, ctx := b.start(true), t.Context()
	if a := s.take(ctx, of("rolling", "k", 3)); !a.Allowed || a.Remaining != countedAmount-3 {
		t.Errorf("a take: %+v", a)
	}
	bucket := api.Bucket{Policy: "rolling", Key: "k"}
	for name, call := range map[string]func() error{
		"batch": func() error {
			a, err := s.client.TakeBatch(ctx, []api.Take{of("exact", "k", 1), of("daily", "k", 1)})
			return errors.Join(err, want(len(a) == 2 && a[0].Allowed && a[1].Allowed, a))
		},
		"cancel": func() error { return s.reserve(ctx, of("later", "k", 2)).Cancel(ctx) },
		"explain": func() error {
			a, err := s.client.Explain(ctx, api.ExplainRequest{Bucket: bucket})
			return errors.Join(err, want(a.Allowed && len(a.Applied) == 1, a))
		},
		"policies": func() error {
			a, err := s.client.Policies(ctx)
			return errors.Join(err, want(len(a) == 9, a))
		},
		"ready": func() error { _, err := s.client.Ready(ctx); return err },
		"buckets": func() error {
			a, err := s.admin.Buckets(ctx, client.BucketsQuery{Policy: "rolling"})
			return errors.Join(err, want(slices.Equal(a.Keys, []string{"k"}), a))
		},
		"usage":    func() error { _, err := s.admin.Usage(ctx, client.UsageQuery{}); return err },
		"waiting":  func() error { _, err := s.admin.Waiting(ctx, "", ""); return err },
		"refusals": func() error { _, err := s.admin.Refusals(ctx, client.RefusalsQuery{}); return err },
		"reset": func() error {
			n, err := s.admin.Reset(ctx, api.ResetRequest{Policy: "exact", Key: "nobody"})
			return errors.Join(err, want(n == 1, n))
		},
		"disable": func() error {
			_, err := s.admin.Disable(ctx, "bucket", time.Minute)
			_, again := s.admin.Enable(ctx, "bucket")
			return errors.Join(err, again)
		},
		"upstreams": func() error { _, err := s.admin.Upstreams(ctx, ""); return err },
		"reload":    func() error { _, err := s.admin.Reload(ctx); return err },
		"history": func() error {
			n := 0
			for _, err := range s.admin.History(ctx, client.HistoryQuery{Policy: "rolling"}) {
				if err != nil {
					return err
				}
				n++
			}
			return want(n == 1, n)
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// want returns an error that shows what was got, unless it is what is wanted.
func want(ok bool, got any) error {
	if ok {
		return nil
	}
	return fmt.Errorf("got %+v", got)
}

// commandLines has the commands of each version ask a server of the other one.
func commandLines(t *testing.T, p previous) {
	t.Helper()
	b := startBoth(t, p, onSQLite(t, p))
	b.directions(func(from, to oneServer) {
		key := "asked by " + from.version
		of := func(command string, more ...string) []string {
			return append([]string{command, "--policy", "rolling", "--key", key}, more...)
		}
		for _, c := range []struct {
			args []string
			code int
		}{
			{of("take", "-n", "2"), 0},
			{of("run", "--", "true"), 0},
			{[]string{"run", "--policy", "one", "--wait", "1m", "--", "true"}, 0},
			{of("status", "--json"), 0},
			{of("explain"), 0},
			{of("pause", "--for", "1h", "--reason", "a test"), 0},
			{of("take"), 75},
			{of("unpause", "--reason", "a test"), 0},
			{of("adjust", "--limit", "rolling", "--used", "7", "--reason", "a test"), 0},
			{[]string{"history", "--last", "3", "--json"}, 0},
			{[]string{"top", "--once", "--json"}, 0},
			{[]string{"policy", "list"}, 0},
			{[]string{"policy", "disable", "bucket", "--for", "1m"}, 0},
			{[]string{"policy", "enable", "bucket"}, 0},
		} {
			at := 1
			if c.args[0] == "policy" {
				at = 2
			}
			args := slices.Insert(c.args, at, "--server", to.daemon.admin)
			if out, code := from.bench.do(args...); code != c.code {
				t.Errorf("%s asks %s: %q: exit code %d, want %d: %s", from.version, to.version, args, code, c.code, out)
			}
		}
		if used, open := from.used("rolling", key); used != 7 || open != 0 {
			t.Errorf("%s asked %s: %d are used, %d open", from.version, to.version, used, open)
		}
		if _, code := from.bench.do(slices.Insert(of("reset", "--yes"), 1, "--server", to.daemon.admin)...); code != 0 {
			t.Errorf("%s resets at %s: exit code %d", from.version, to.version, code)
		}
		if used, _ := from.used("rolling", key); used != 0 {
			t.Errorf("%s has reset at %s: %d are used", from.version, to.version, used)
		}
	})
}

// pythonPackages runs the tests of each version's Python package against the other one's server.
func pythonPackages(t *testing.T, p previous) {
	t.Helper()
	python := needs.Tool(t, "python/bin/python")
	here, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	program, err := exec.LookPath("drawgate")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-m", "pytest"}
	for _, name := range []string{"errors", "fallback", "faults", "limited", "renewal", "reserve", "take", "threads"} {
		args = append(args, filepath.Join("tests", "test_"+name+".py"))
	}
	for folder, server := range map[string]string{filepath.Join(p.source, "python"): program, here: p.program} {
		cmd := exec.CommandContext(t.Context(), python, args...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "DRAWGATE_PROGRAM="+server, "PYTHONPATH="+folder, "PYTHONDONTWRITEBYTECODE=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("the tests in %s with %s: %v\n%s", folder, server, err, out)
		}
		t.Logf("the tests in %s with %s: %s", folder, server, out[max(0, len(out)-200):])
	}
}

// interfaces compares what programs and people rely on: nothing of it is gone.
func interfaces(t *testing.T, p previous) {
	t.Helper()
	b := startBoth(t, p, `"memory:"`)
	shown := map[string]map[string]bool{}
	for _, s := range b.sides() {
		s.take(t.Context(), of("rolling", "k", 1))
		if res := s.reserve(t.Context(), of("slots", "k", slotsAmount)); res != nil {
			s.reserve(t.Context(), of("slots", "k", 1))
			if err := res.Cancel(t.Context()); err != nil {
				t.Error(err)
			}
		}
		shown[s.version] = series(s.must(s.daemon.admin+"/metrics", nil).body)
		maps.Copy(shown[s.version], flags(t, s.bench))
	}
	for name := range shown[b.old.version] {
		if !shown[b.today.version][name] {
			t.Errorf("gone: %s", name)
		}
	}
	if n := len(shown[b.old.version]); n < 300 {
		t.Errorf("only %d metrics and flags were compared", n)
	}
	for name, document := range map[string]func(oneServer) string{
		"openapi.json": func(s oneServer) string { return s.must(s.public+"/openapi.json", nil).body },
		"schema":       func(s oneServer) string { out, _ := s.bench.do("schema"); return out },
		"status": func(s oneServer) string {
			return s.must(s.public+"/v1/status?policy=several&key=nobody", nil).body
		},
		"policies": func(s oneServer) string { return s.must(s.public+"/v1/policies", nil).body },
	} {
		var was, is any
		if err := errors.Join(json.Unmarshal([]byte(document(b.old)), &was),
			json.Unmarshal([]byte(document(b.today)), &is)); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, path := range lacking(was, is, name) {
			t.Errorf("gone or changed: %s", path)
		}
	}
}

var (
	typed    = regexp.MustCompile(`(?m)^# TYPE ((?:drawgate|rate)_\S+ \S+)$`)
	labelled = regexp.MustCompile(`(?m)^((?:drawgate|rate)_\w+)\{(.*)\} `)
	label    = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	option   = regexp.MustCompile(`\\-\\-([a-z\\-]+)`)
)

// series returns the names and types of metrics, and the names of their labels.
func series(text string) map[string]bool {
	all := map[string]bool{}
	for _, m := range typed.FindAllStringSubmatch(text, -1) {
		all["metric "+m[1]] = true
	}
	for _, m := range labelled.FindAllStringSubmatch(text, -1) {
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			all["label "+l[1]+" of "+m[1]] = true
		}
	}
	return all
}

// flags returns the commands of a program and their flags, as its manual pages have them.
func flags(t *testing.T, b bench) map[string]bool {
	t.Helper()
	dir := t.TempDir()
	if out, code := b.do("man", dir); code != 0 {
		t.Fatalf("man: %d, %s", code, out)
	}
	all := map[string]bool{}
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(page), ".1")
		all["command "+name] = true
		for _, m := range option.FindAllSubmatch(text, -1) {
			all[fmt.Sprintf("flag %s of %s", m[1], name)] = true
		}
	}
	return all
}

// forPeople are texts that may change.
var forPeople = []string{"description", "summary", "title", "version", "example", "examples", "message"}

// lacking returns the places at which something that was there is missing or another value.
func lacking(was, is any, path string) (missing []string) {
	switch was := was.(type) {
	case map[string]any:
		is, ok := is.(map[string]any)
		if !ok {
			return []string{path}
		}
		for name, v := range was {
			at := path + "." + name
			now, ok := is[name]
			if _, text := v.(string); text && slices.Contains(forPeople, name) {
				continue
			}
			if !ok {
				missing = append(missing, at)
				continue
			}
			missing = append(missing, lacking(v, now, at)...)
		}
	case []any:
		is, _ := is.([]any)
		for i, v := range was {
			at := fmt.Sprintf("%s[%d]", path, i)
			if !slices.ContainsFunc(is, func(now any) bool { return len(lacking(v, now, at)) == 0 }) {
				missing = append(missing, at)
			}
		}
	case string:
		if _, err := time.Parse(time.RFC3339Nano, was); err == nil {
			return nil
		}
		if was != is {
			missing = []string{path}
		}
	default:
		if was != is {
			missing = []string{path}
		}
	}
	return missing
}

// configurations of the previous version, those of its documentation included, are still accepted.
func configurations(t *testing.T, p previous) {
	t.Helper()
	old, today := p.bench(t), newBench(t)
	var files []string
	err := filepath.WalkDir(p.source, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		ext := filepath.Ext(path)
		if ext != ".yaml" && ext != ".yml" && ext != ".md" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if ext != ".md" {
			if strings.Contains(string(text), "policies:") {
				files = append(files, path)
			}
			return nil
		}
		for i, m := range shownYAML.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(m[1], "policies:") {
				continue
			}
			file := fmt.Sprintf("%s-%d.yaml", path, i)
			if err := os.WriteFile(file, []byte(m[1]), 0o600); err != nil {
				return err
			}
			files = append(files, file)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for _, file := range files {
		if _, code := old.do("validate", file); code != 0 {
			continue // secrets that are not here, or an example of a mistake
		}
		accepted++
		if out, code := today.do("validate", file); code != 0 {
			t.Errorf("%s: exit code %d: %s", strings.TrimPrefix(file, p.source), code, out)
		}
	}
	t.Logf("the previous version accepts %d of its %d files", accepted, len(files))
	if accepted < 20 {
		t.Errorf("only %d files were compared", accepted)
	}
}

var shownYAML = regexp.MustCompile("(?s)\n```yaml\n(.*?)\n```")
