// Command testlog reads the output of "go test -json" and judges it: a failed test fails the run,
// and so does a skipped one, because it shows nothing.
//
//	go test -json ./... | testlog [-slowest N] [-later FILE] [-failed FILE]
//
// It prints a line for each package, then the whole output of each test that failed, and the last
// lines of a package that failed without a failed test, such as after a fatal error. What failed is
// added to the file of -failed, too: of several runs side by side, one file has it.
//
// Tests that leave themselves to a run without the race detector (needs.NoRace) are no skipped
// tests if -later names a file with the arguments of "go test" that run them: "concurrent -later"
// prints it.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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
	flag.StringVar(&o.failed, "failed", "", "file that what failed is added to")
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
	failed  string // "" for no file
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
	var failures bytes.Buffer
	l.printFailures(&failures, mayLeave) // near the end, where whoever reads only that finds why
	fmt.Fprintf(w, "%s", failures.Bytes())
	if err := appendTo(o.failed, failures.Bytes()); err != nil {
		return false, err
	}
	return l.verdict(mayLeave), nil
}

// appendTo adds text to a file, if there are both.
func appendTo(file string, text []byte) error {
	if file == "" || len(text) == 0 {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// event is a line of "go test -json", as "go doc test2json" describes it.
type event struct {
	Action, Package, ImportPath, Test, Output, FailedBuild string
	Elapsed                                                float64
}
