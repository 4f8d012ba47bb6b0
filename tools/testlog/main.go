// Command testlog reads the output of "go test -json" and judges it: a failed test fails the run,
// and so does a skipped one, because it shows nothing.
//
//	go test -json ./... | testlog [-slowest N] [-later FILE]
//
// It prints a line for each package, then the whole output of each test that failed, and the last
// lines of a package that failed without a failed test, such as after a fatal error.
//
// Tests that leave themselves to a run without the race detector (needs.NoRace) are no skipped
// tests if -later names a file with the arguments of "go test" that run them: "concurrent -later"
// prints it.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	var o options
	flag.IntVar(&o.slowest, "slowest", 0, "print this many of the slowest packages and tests")
	flag.StringVar(&o.later, "later", "", "file with the tests that run without the race detector")
	flag.Parse()
	switch ok, err := run(os.Stdout, os.Stdin, o); {
	case err != nil:
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(2)
	case !ok:
		os.Exit(1)
	}
}

type options struct {
	slowest int
	later   string // "" if nothing may be left to another run
}

func run(w io.Writer, in io.Reader, o options) (ok bool, err error) {
	l := newLog(w)
	mayLeave := func(result) bool { return false }
	if o.later != "" {
		args, err := os.ReadFile(o.later)
		if err != nil {
			return false, err
		}
		if mayLeave, err = later(strings.Fields(string(args))); err != nil {
			return false, fmt.Errorf("%s: %w", o.later, err)
		}
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) == nil {
			l.add(e)
		} else { // of the compiler, or of go itself
			fmt.Fprintf(w, "%s\n", lines.Bytes())
		}
	}
	if err := lines.Err(); err != nil {
		return false, err
	}
	if o.slowest > 0 {
		l.printSlowest(o.slowest)
	}
	return l.verdict(mayLeave), nil
}

// event is a line of "go test -json", as "go doc test2json" describes it.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}
