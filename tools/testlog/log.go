package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// withoutRace is what needs.NoRace says when it leaves a test out.
const withoutRace = "left to the run without the race detector"

// Of the output of a test that failed the first bytes are printed; of a package that failed without
// a failed test, the last lines.
const (
	maxBytes  = 100_000
	lastLines = 60
)

// log has what has ended, and the output of what has not.
type log struct {
	w      io.Writer
	texts  map[name]*bytes.Buffer
	ended  []result
	begun  map[string]bool          // packages that have not ended
	builds map[string]*bytes.Buffer // by the import path of what was built
}

// name is that of a test, or of a package: then test is "".
type name struct{ pkg, test string }

type result struct {
	name
	action  string // "pass", "fail" or "skip"
	seconds float64
	text    string // what it printed; if it passed, only what came afterwards: another's panic may be among it
}

func newLog(w io.Writer) *log {
	return &log{w: w, texts: map[name]*bytes.Buffer{}, begun: map[string]bool{}, builds: map[string]*bytes.Buffer{}}
}

// add takes an event.
func (l *log) add(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "start":
		l.begun[e.Package] = true
	case "build-output":
		buffer(l.builds, e.ImportPath).WriteString(e.Output)
	case "output":
		buffer(l.texts, n).WriteString(e.Output)
	case "pass", "fail", "skip":
		r := result{name: n, action: e.Action, seconds: e.Elapsed, text: buffer(l.texts, n).String()}
		if e.Action == "pass" {
			_, r.text, _ = strings.Cut(r.text, "--- PASS: "+e.Test+" (")
			_, r.text, _ = strings.Cut(r.text, "\n")
		} else {
			if e.FailedBuild != "" {
				r.text += buffer(l.builds, e.FailedBuild).String()
			}
		}
		l.ended = append(l.ended, r)
		if e.Test == "" {
			delete(l.begun, e.Package)
			l.printPackage(r)
		}
		delete(l.texts, n)
	}
}

func buffer[K comparable](m map[K]*bytes.Buffer, k K) *bytes.Buffer {
	if m[k] == nil {
		m[k] = &bytes.Buffer{}
	}
	return m[k]
}

func (n name) compare(o name) int {
	return cmp.Or(strings.Compare(n.pkg, o.pkg), strings.Compare(n.test, o.test))
}

// isTop reports whether n is a test, and none within another.
func (n name) isTop() bool { return n.test != "" && !strings.Contains(n.test, "/") }

// noTests reports whether a result is a package's that has no tests.
func (r result) noTests() bool { return r.test == "" && r.action == "skip" }

func (l *log) printPackage(r result) {
	if !r.noTests() {
		fmt.Fprintf(l.w, "%-4s %s %.1fs\n", map[string]string{"pass": "ok", "fail": "FAIL"}[r.action], r.pkg, r.seconds)
	}
}

// printUnended prints which packages had not ended when go itself was killed, and which tests a
// package that was killed had begun, and what they had printed.
func (l *log) printUnended(w io.Writer) {
	for _, pkg := range slices.Sorted(maps.Keys(l.begun)) {
		fmt.Fprintf(w, "---- not ended: %s\n", pkg)
	}
	for _, n := range slices.SortedFunc(maps.Keys(l.texts), name.compare) {
		if n.test != "" { // a panic is among the text, if this test was the last to begin
			fmt.Fprintf(w, "---- not ended: %s %s\n%s", n.pkg, n.test, withoutMarks(l.texts[n].String()))
		}
	}
}

// withoutMarks returns the first bytes of a text without what says which test goes on.
func withoutMarks(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text[:min(len(text), maxBytes)]) {
		if !strings.HasPrefix(line, "=== ") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// printFailures prints what fails the run: what did not end, what failed, innermost tests first,
// and what was skipped and may not be.
func (l *log) printFailures(w io.Writer, maySkip func(result) bool) {
	l.printUnended(w)
	failed := map[string]bool{} // packages with a failed test
	for _, r := range l.ended {
		if r.action != "fail" {
			continue
		}
		text := r.text
		switch {
		case r.test == "" && failed[r.pkg]:
			continue // its tests have said why
		case r.test == "":
			l.printAfter(w, r.pkg)
			text = lastOf(text)
		default:
			failed[r.pkg] = true
			text = text[:min(len(text), maxBytes)]
		}
		fmt.Fprintf(w, "\n---- FAIL %s %s\n%s", r.pkg, r.test, text)
	}
	for _, r := range l.ended {
		if r.test != "" && r.action == "skip" && !maySkip(r) {
			fmt.Fprintf(w, "skipped, install what it needs: %s %s\n%s", r.pkg, r.test, r.text)
		}
	}
}

// printAfter prints what the tests of a package printed after they had passed.
func (l *log) printAfter(w io.Writer, pkg string) {
	for _, r := range l.ended {
		if text := withoutMarks(r.text); r.pkg == pkg && r.test != "" && r.action == "pass" && text != "" {
			fmt.Fprintf(w, "\n---- after %s %s\n%s", r.pkg, r.test, text)
		}
	}
}

func lastOf(text string) string {
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-lastLines-1):], "")
}

// printSlowest prints which packages and which tests took longest. Parallel tests share the
// processors.
func (l *log) printSlowest(n int) {
	for _, part := range []struct {
		title string
		of    func(result) bool
	}{
		{"packages", func(r result) bool { return r.test == "" && !r.noTests() }},
		{"tests", func(r result) bool { return r.isTop() }},
	} {
		rows := slices.DeleteFunc(slices.Clone(l.ended), func(r result) bool { return !part.of(r) })
		slices.SortStableFunc(rows, func(a, b result) int { return cmp.Compare(b.seconds, a.seconds) })
		sum := 0.0
		for _, r := range rows {
			sum += r.seconds
		}
		fmt.Fprintf(l.w, "\n%d %s, %.0f s together; the slowest:\n", len(rows), part.title, sum)
		for _, r := range rows[:min(n, len(rows))] {
			fmt.Fprintf(l.w, "%8.1f s  %s %s\n", r.seconds, r.pkg, r.test)
		}
	}
}

// later returns what the arguments "-run REGEXP PACKAGE..." of another run allow to be left to it.
func later(args []string) (func(result) bool, error) {
	if len(args) < 3 || args[0] != "-run" {
		return nil, fmt.Errorf("got %q, want -run, a regular expression and packages", args)
	}
	tests, err := regexp.Compile(args[1])
	if err != nil {
		return nil, err
	}
	return func(r result) bool {
		top, _, _ := strings.Cut(r.test, "/")
		return r.action == "skip" && strings.Contains(r.text, withoutRace) &&
			tests.MatchString(top) && slices.Contains(args[2:], r.pkg)
	}, nil
}

// verdict prints the counts, and reports whether all is well.
func (l *log) verdict(maySkip func(result) bool) bool {
	counts, packages := map[string]int{}, 0
	for _, r := range l.ended {
		switch {
		case r.test == "":
			if packages++; r.action == "fail" {
				counts["broken"]++
			}
		case r.action == "skip" && maySkip(r):
			counts["left out"]++
		default:
			counts[r.action]++
		}
	}
	if counts["left out"] > 0 {
		fmt.Fprintf(l.w, "%d left out\n", counts["left out"])
	}
	if passed, failed := counts["pass"], max(counts["fail"], counts["broken"]); passed+failed+counts["skip"] > 0 {
		fmt.Fprintf(l.w, "%d passed, %d failed, %d skipped\n", passed, failed, counts["skip"])
	} else {
		fmt.Fprintln(l.w, "there are no tests")
	}
	return packages > 0 && len(l.begun) == 0 && counts["fail"]+counts["broken"]+counts["skip"] == 0
}
