// Command mutants makes small changes of the code, one at a time, and checks that a test fails for
// each. It never changes the files themselves.
//
//	mutants root [prefixes of file names]
//
// The list of changes is tools/mutants/list.txt below the root.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// longest is how long tests may take: one that does not end has noticed the change.
const longest = 5 * time.Minute

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: mutants root [prefixes of file names]")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Stdout, os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run runs the mutants of the files with one of the prefixes, or all.
func run(ctx context.Context, w io.Writer, root string, prefixes []string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(root, "tools/mutants/list.txt"))
	if err != nil {
		return err
	}
	list, err := parse(string(text))
	if err != nil {
		return err
	}
	list = slices.DeleteFunc(list, func(m mutant) bool {
		begins := func(prefix string) bool { return strings.HasPrefix(m.file, prefix) }
		return len(prefixes) > 0 && !slices.ContainsFunc(prefixes, begins)
	})
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	r := &runner{root: root, dir: dir}
	if err := r.passUnchanged(ctx, list); err != nil {
		return err
	}
	count := map[string]int{}
	for i := range list {
		m := &list[i]
		verdict, test, line := r.try(ctx, m)
		count[verdict]++
		fmt.Fprintf(w, "%-40s %-16s %-50s %s\n", fmt.Sprintf("%s:%d", m.file, line), verdict, test, m)
		if verdict == same {
			fmt.Fprintf(w, "    %s\n", m.same)
		}
	}
	fmt.Fprintf(w, "%d mutants: %d killed, %d change nothing\n", len(list), count[killed], count[same])
	if bad := len(list) - count[killed] - count[same]; bad > 0 {
		return fmt.Errorf("%d were not killed", bad)
	}
	return nil
}

// The verdicts on a mutant.
const (
	killed   = "killed"
	survived = "SURVIVED"
	same     = "changes nothing"
	missing  = "NOT FOUND"
	invalid  = "DOES NOT COMPILE"
)

type runner struct {
	root, dir string
	program   string // drawgate, once it is built: the tests in Python start it
}

// passUnchanged fails if the tests fail without a change, or if none of those that are named is
// there.
func (r *runner) passUnchanged(ctx context.Context, list []mutant) error {
	tests, all := map[string][]string{}, map[string]bool{} // by place
	var places []string
	for _, m := range list {
		for _, p := range m.places {
			if !slices.Contains(places, p) {
				places = append(places, p)
			}
			tests[p], all[p] = append(tests[p], m.tests...), all[p] || len(m.tests) == 0
		}
	}
	for _, p := range places {
		names := slices.Compact(slices.Sorted(slices.Values(tests[p])))
		if all[p] {
			names = nil
		}
		out, ok := r.test(ctx, &mutant{places: []string{p}, tests: names}, "")
		if !ok || strings.Contains(out, "no tests to run") {
			return fmt.Errorf("the tests fail without a change: %s\n%s", p, out)
		}
	}
	return nil
}

// try returns the verdict on a mutant, which test noticed it, and where it is.
func (r *runner) try(ctx context.Context, m *mutant) (verdict, test string, line int) {
	path := filepath.Join(r.root, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return missing, "", 0
	}
	changed, line, err := m.apply(string(text))
	switch {
	case err != nil:
		return missing, "", 0
	case m.same != "":
		return same, "", line
	}
	out, ok := r.test(ctx, m, changed)
	switch {
	case ok:
		return survived, "", line
	case strings.Contains(out, "[build failed]") || strings.Contains(out, "[setup failed]"):
		return invalid, "", line
	}
	return killed, firstFailure(out), line
}

var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: (\S+)|FAILED \S+::(\S+)|ERROR \S+::(\S+))`)

// firstFailure returns the test that failed first.
func firstFailure(out string) string {
	switch m := failure.FindStringSubmatch(out); {
	case m != nil:
		return strings.Join(m[1:], "")
	case strings.Contains(out, "panic: test timed out"):
		return "the tests did not end"
	}
	return "the tests ended early"
}

// test runs a mutant's tests with the changed text of its file, if there is one.
func (r *runner) test(ctx context.Context, m *mutant, changed string) (out string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, longest+time.Minute)
	defer cancel()
	if strings.HasSuffix(m.places[0], ".py") {
		return r.testPython(ctx, m, changed)
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-failfast", "-timeout="+longest.String())
	if len(m.tests) > 0 {
		cmd.Args = append(cmd.Args, "-run="+pattern(m.tests))
	}
	cmd.Args, cmd.Dir = append(cmd.Args, m.places...), r.root
	if changed != "" { // in the environment: some tests build a program
		overlay, err := r.overlay(m.file, changed)
		if err != nil {
			return err.Error(), true
		}
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	}
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

// pattern returns an expression for the names of tests.
func pattern(tests []string) string {
	var all []string
	for _, t := range tests {
		all = append(all, "^"+strings.ReplaceAll(t, "/", "$/^")+"$")
	}
	return strings.Join(all, "|")
}

// overlay tells the go command to read the changed text in the file's place.
func (r *runner) overlay(file, changed string) (string, error) {
	to, list := filepath.Join(r.dir, filepath.Base(file)), filepath.Join(r.dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(r.root, file): to}})
	if err != nil {
		return "", err
	}
	return list, errors.Join(os.WriteFile(to, []byte(changed), 0o600), os.WriteFile(list, replace, 0o600))
}

// testPython is test for the Python package, with the change in a copy of it.
func (r *runner) testPython(ctx context.Context, m *mutant, changed string) (out string, ok bool) {
	dir := filepath.Join(r.dir, "python")
	err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(filepath.Join(r.root, "python"))))
	if changed != "" {
		err = errors.Join(err, os.WriteFile(filepath.Join(r.dir, m.file), []byte(changed), 0o600))
	}
	if r.program == "" {
		r.program = filepath.Join(r.dir, "drawgate")
		build := exec.CommandContext(ctx, "go", "build", "-o", r.program, "./cmd/drawgate")
		build.Dir = r.root
		err = errors.Join(err, build.Run())
	}
	if err != nil {
		return err.Error(), true
	}
	cmd := exec.CommandContext(ctx, filepath.Join(r.root, ".tools/python/bin/python"), "-m", "pytest", "-x")
	if len(m.tests) > 0 {
		cmd.Args = append(cmd.Args, "-k", strings.Join(m.tests, " or "))
	}
	for _, p := range m.places {
		cmd.Args = append(cmd.Args, filepath.Join("tests", filepath.Base(p)))
	}
	// When the time is over pytest stops what it has started.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(os.Interrupt) }, time.Minute
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "DRAWGATE_PROGRAM="+r.program, "PYTHONPATH="+dir, "PYTHONDONTWRITEBYTECODE=1")
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}
