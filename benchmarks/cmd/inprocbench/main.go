// Command inprocbench is section A: it runs the benchmarks of in-process limiters, each limiter in
// a process of its own, repetitions outermost, and only while the machine is quiet. Run it in the
// benchmarks folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
	"github.com/drawgate/drawgate/benchmarks/peers"
)

var (
	only      = flag.String("only", ".", "regexp of limiter names")
	cases     = flag.String("case", ".", "regexp of cases: hot-allow, hot-deny, three-allow, three-deny, 1Mkeys")
	reps      = flag.Int("reps", 6, "repetitions")
	benchtime = flag.Duration("benchtime", 300*time.Millisecond, "length of one cell")
	cpu       = flag.String("cpu", "1,2", "values of GOMAXPROCS")
	out       = flag.String("out", "results/a-inproc.txt", "file of raw results; it must not exist")
	maxOther  = flag.Float64("max-other", 0.3, "cores that other processes may use")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "inprocbench:", err)
		os.Exit(1)
	}
}

func run() error {
	re, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	o, err := stat.NewOut(*out)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "inprocbench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	bin := filepath.Join(dir, "inproc.test")
	if b, err := exec.Command("go", "test", "-c", "-o", bin, "./inproc").CombinedOutput(); err != nil {
		return fmt.Errorf("building the benchmarks: %w\n%s", err, b)
	}
	for rep := 1; rep <= *reps; rep++ {
		for _, e := range peers.Inproc() {
			if !re.MatchString(e.Name) {
				continue
			}
			text, err := bench(bin, e.Name)
			if err != nil {
				return fmt.Errorf("%s: %w", e.Name, err)
			}
			if err := o.Text(fmt.Sprintf("# repetition %d\n%s", rep, text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// bench runs all cells of one limiter and returns the lines of results.
func bench(bin, name string) (string, error) {
	var text strings.Builder
	var err error
	g := sysx.Gate{MaxOther: *maxOther, Patience: time.Minute, Tries: 3}
	r := g.Run(func() {
		c := exec.Command(bin, "-test.run=^$", "-test.benchmem", "-test.cpu="+*cpu,
			"-test.benchtime="+benchtime.String(),
			"-test.bench=^BenchmarkA$/^limiter="+regexp.QuoteMeta(name)+"$/^case=.*("+*cases+")")
		c.Stderr = os.Stderr
		var b []byte
		b, err = c.Output()
		text.Reset()
		for l := range strings.Lines(string(b)) {
			if strings.HasPrefix(l, "Benchmark") {
				text.WriteString(l)
			}
		}
	})
	fmt.Fprintf(&text, "# other cores: %.2f\n", r.Other)
	return text.String(), err
}
