package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// files is a module in which everything happens that testlog tells apart.
var files = map[string]string{
	"go.mod": "module m\n\ngo 1.26\n",
	"good/a_test.go": `package good
import "testing"
func TestGood(t *testing.T) { t.Run("sub", func(t *testing.T) {}) }`,
	"none/a.go": `package none`,
	"later/a_test.go": `package later
import "testing"
func TestOne(t *testing.T) { t.Skip("left to the run without the race detector") }
func TestTwo(t *testing.T) { t.Skip("left to the run without the race detector") }
func TestThree(t *testing.T) {}`,
	"skip/a_test.go": `package skip
import "testing"
func TestMissing(t *testing.T) { t.Skip("needs nothing-of-the-kind") }`,
	"fail/a_test.go": `package fail
import "testing"
func TestBad(t *testing.T) { t.Run("sub", func(t *testing.T) { t.Error("got 1, want 2") }) }
func TestGood(t *testing.T) { t.Log("nobody wants to read this") }`,
	"dies/a_test.go": `package dies
import ("os"; "testing")
func TestMain(m *testing.M) { println("fatal error: out of luck"); os.Exit(3) }`,
	"hangs/a_test.go": `package hangs
import ("fmt"; "os"; "testing")
func TestExit(t *testing.T) { fmt.Println("the last words"); os.Exit(4) }`,
	"panics/a_test.go": `package panics
import "testing"
func TestBad(t *testing.T) { t.Error("comes last") }
func TestPanic(t *testing.T) {
	t.Run("waits", func(t *testing.T) { t.Parallel() })
	done := make(chan int)
	go func() { panic("out of nowhere") }()
	<-done
}`,
	"after/a_test.go": `package after
import ("testing"; "time")
var ended = make(chan int)
func TestGood(t *testing.T) { t.Parallel(); t.Cleanup(func() { close(ended) }) }
func TestLong(t *testing.T) {
	t.Parallel()
	<-ended
	time.Sleep(100 * time.Millisecond) // TestGood has most likely said that it passed
	go func() { panic("in nobody's test") }()
	select {}
}`,
	"wrong/a_test.go": `package wrong
var x int = "text"`,
}

// judge runs the tests of some of its packages, and testlog on their output.
func judge(t *testing.T, o options, packages ...string) (out string, ok bool) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-json"}, packages...)...)
	cmd.Dir = dir
	in, _ := cmd.Output() // what failed is in the output
	var w bytes.Buffer
	ok, err := run(&w, bytes.NewReader(in), o)
	if err != nil {
		t.Fatal(err)
	}
	return w.String(), ok
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		packages string
		o        options
		ok       bool
		want     []string
	}{
		"passed": {
			"./good ./none",
			options{},
			true,
			[]string{"ok   m/good", "2 passed, 0 failed, 0 skipped\n"},
		},
		"skipped": {
			"./good ./skip",
			options{},
			false,
			[]string{"m/skip TestMissing", "needs nothing-of-the-kind", "1 skipped"},
		},
		"failed":          {"./good ./fail", options{}, false, []string{"FAIL m/fail TestBad/sub", "got 1, want 2"}},
		"died at once":    {"./dies", options{}, false, []string{"FAIL m/dies", "fatal error: out of luck"}},
		"ended in a test": {"./hangs", options{}, false, []string{"m/hangs", "the last words"}},
		"panicked elsewhere": {
			"./panics",
			options{},
			false,
			[]string{"not ended: m/panics TestPanic", "out of nowhere", "FAIL m/panics TestBad", "comes last"},
		},
		"panicked after a test that passed": {"./after", options{}, false, []string{"FAIL m/after", "in nobody's test"}},
		"did not compile": {
			"./wrong ./good",
			options{},
			false,
			[]string{"FAIL m/wrong", "cannot use"},
		},
		"no tests":          {"./none", options{}, true, []string{"there are no tests"}},
		"nothing for later": {"./later", options{}, false, []string{"2 skipped"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, ok := judge(t, c.o, strings.Fields(c.packages)...)
			if ok != c.ok {
				t.Errorf("all is well: %v, want %v", ok, c.ok)
			}
			for _, w := range c.want {
				if !strings.Contains(out, w) {
					t.Errorf("the output lacks %q:\n%s", w, out)
				}
			}
			if i := strings.LastIndex(out, "not ended"); i > 0 && i > strings.Index(out, "---- FAIL") {
				t.Errorf("why it failed is not at the end:\n%s", out)
			}
			if strings.Contains(out, "nobody wants") {
				t.Errorf("the output of a test that passed is printed:\n%s", out)
			}
		})
	}
}

func TestLater(t *testing.T) {
	t.Parallel()
	file := func(args string) options {
		path := filepath.Join(t.TempDir(), "later")
		if err := os.WriteFile(path, []byte(args), 0o600); err != nil {
			t.Fatal(err)
		}
		return options{later: path}
	}
	both := file("-run ^(TestOne|TestTwo)$ m/other m/later\n")
	if out, ok := judge(t, both, "./good", "./later"); !ok || !strings.Contains(out, "2 left out") {
		t.Errorf("all is well: %v\n%s", ok, out)
	}
	if _, ok := judge(t, both, "./later", "./skip"); ok {
		t.Error("a test that is skipped for something else is well")
	}
	for _, args := range []string{"-run ^(TestOne)$ m/later", "-run ^(TestOne|TestTwo)$ m/other"} {
		if out, ok := judge(t, file(args), "./later"); ok {
			t.Errorf("%s: a test that no other run has is well:\n%s", args, out)
		}
	}
	for _, args := range []string{"", "-run ( m/later", "-skip TestOne m/later"} {
		if _, err := run(&bytes.Buffer{}, strings.NewReader(""), file(args)); err == nil {
			t.Errorf("the arguments %q are taken", args)
		}
	}
}

func TestFailuresOfSeveralRunsInAFile(t *testing.T) {
	t.Parallel()
	o := options{failed: filepath.Join(t.TempDir(), "failed")}
	if _, ok := judge(t, o, "./good"); !ok {
		t.Fatal("a good test fails")
	}
	if _, err := os.Stat(o.failed); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nothing failed: %v, want no file", err)
	}
	judge(t, o, "./good", "./fail")
	judge(t, o, "./skip")
	text, err := os.ReadFile(o.failed)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAIL m/fail TestBad/sub", "got 1, want 2", "m/skip TestMissing"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the file lacks %q:\n%s", want, text)
		}
	}
	for _, not := range []string{"passed", "m/good"} {
		if strings.Contains(string(text), not) {
			t.Errorf("the file has %q:\n%s", not, text)
		}
	}
}

// TestGoIsKilled: a run is not passed that ended before its packages did.
func TestGoIsKilled(t *testing.T) {
	t.Parallel()
	in := `{"Action":"start","Package":"a"}
{"Action":"start","Package":"b"}
{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a"}
`
	var w bytes.Buffer
	ok, err := run(&w, strings.NewReader(in), options{})
	if err != nil || ok || !strings.Contains(w.String(), "not ended: b\n") {
		t.Errorf("%v, %v: %s", ok, err, &w)
	}
}

// TestFailuresAreShownAnyway: also where they cannot be written.
func TestFailuresAreShownAnyway(t *testing.T) {
	t.Parallel()
	in := `{"Action":"fail","Package":"a","Test":"TestA"}
{"Action":"fail","Package":"a"}
`
	var w bytes.Buffer
	ok, err := run(&w, strings.NewReader(in), options{failed: filepath.Join(t.TempDir(), "none", "failed")})
	if err == nil || ok || !strings.Contains(w.String(), "FAIL a TestA") {
		t.Errorf("%v, %v: %s", ok, err, &w)
	}
}

func TestSlowest(t *testing.T) {
	t.Parallel()
	in := `{"Action":"pass","Package":"a","Test":"TestA","Elapsed":1.5}
{"Action":"pass","Package":"a","Test":"TestB","Elapsed":9}
{"Action":"pass","Package":"a","Test":"TestB/sub","Elapsed":9}
{"Action":"pass","Package":"a","Elapsed":10}
`
	var w bytes.Buffer
	if ok, err := run(&w, strings.NewReader(in), options{slowest: 1}); err != nil || !ok {
		t.Fatal(ok, err)
	}
	for _, want := range []string{"1 packages, 10 s together", "2 tests, 10 s together", "9.0 s  a TestB\n"} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, w.String())
		}
	}
}

// TestCrashOfTheRaceDetector: what its own crash ends is run again, once. What fails is not.
func TestCrashOfTheRaceDetector(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script, want string
		runs         int
		passes       bool
	}{
		"passes":              {"echo fine", "fine", 1, true},
		"fails":               {"echo bad; exit 1", "bad", 1, false},
		"crashes":             {"[ $n = 2 ] && echo fine || { echo 'ThreadSanitizer: CHECK failed: x' >&2; exit 66; }", "fine", 2, true},
		"fails, then crashes": {"echo '--- FAIL: x' 'ThreadSanitizer: CHECK failed: x'; exit 66", "FAIL", 1, false},
		"crashes twice":       {"echo 'ThreadSanitizer: CHECK failed: x'; exit 66", "run again", 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			count := filepath.Join(t.TempDir(), "runs")
			out, err := exec.CommandContext(t.Context(), "../race.sh", "sh", "-c",
				`echo >>"$0"; n=$(wc -l <"$0"); `+c.script, count).CombinedOutput()
			runs, _ := os.ReadFile(count)
			if (err == nil) != c.passes || len(runs) != c.runs || !strings.Contains(string(out), c.want) {
				t.Errorf("after %d runs %v:\n%s", len(runs), err, out)
			}
		})
	}
}
