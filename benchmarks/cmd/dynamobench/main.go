// Command dynamobench is section H: Drawgate and zae-limiter on the same stand-in for DynamoDB,
// with a delay added to each request. It measures calls a second, latency, capacity units and
// requests per take.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
)

var (
	reps      = flag.Int("reps", 5, "rounds; each has every contestant in every cell")
	dur       = flag.Duration("dur", 5*time.Second, "length of a cell")
	delay     = flag.Duration("delay", 8*time.Millisecond, "added to each request")
	tripDelay = flag.Duration("trip-delay", 10*time.Millisecond, "the same where round trips are counted")
	trips     = flag.Int("trips", 100, "takes of each kind whose round trips are counted, in each round")
	only      = flag.String("only", ".", "regexp of cell/contestant")
	out       = flag.String("out", "results/dynamodb/speed.jsonl", "file of raw results; it must not exist")
	tools     = flag.String("tools", "../.tools", "folder in which \"make deps\" has installed moto")
	zae       = flag.String("zae", ".bin/zae", "virtual environment with zae-limiter")
	maxOther  = flag.Float64("max-other", 0.3, "cores that other processes may use")
	show      = flag.Bool("show", false, "print the tables of a file of raw results, and measure nothing")

	call    = flag.String("call", "", "be a process of callers, of this kind: the benchmark starts itself so")
	callers = flag.Int("callers", 1, "callers, with -call")
	st      = flag.String("store", "", "URL of the table, with -call")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dynamobench:", err)
		os.Exit(1)
	}
}

// bench is a run.
type bench struct {
	only *regexp.Regexp
	out  *stat.Out
}

func run() error {
	switch {
	case *call != "":
		return serveCalls()
	case *show:
		return showTables(flag.Arg(0))
	}
	testCredentials()
	re, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	b := &bench{only: re}
	if b.out, err = stat.NewOut(*out); err != nil {
		return err
	}
	for rep := 1; rep <= *reps; rep++ {
		if err := b.round(rep); err != nil {
			return err
		}
		if err := b.roundTrips(rep); err != nil {
			return err
		}
	}
	return nil
}

// testCredentials replaces the user's AWS configuration, here and in the
// processes of the callers.
func testCredentials() {
	keep := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	os.Clearenv()
	for _, v := range append(keep, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_REGION="+region,
		"AWS_DEFAULT_REGION="+region,
		"AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null", "AWS_EC2_METADATA_DISABLED=true") {
		name, value, _ := strings.Cut(v, "=")
		_ = os.Setenv(name, value) // the names are right
	}
}

// round measures every contestant in every cell once. Each round begins with another contestant.
func (b *bench) round(rep int) error {
	for _, c := range cells {
		for i := range contestants {
			who := contestants[(i+rep)%len(contestants)]
			if c.once && rep > 1 || !c.who.MatchString(who.name) || !b.only.MatchString(c.name+"/"+who.name) {
				continue
			}
			if err := b.measure(c, who, rep); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, who.name, err)
			}
		}
	}
	return nil
}

func (b *bench) put(name, cell string, rep int, m map[string]float64, note string) error {
	return b.out.Put(stat.Row{Section: "H", Name: name, Case: cell, Rep: rep, M: m, Note: note})
}
