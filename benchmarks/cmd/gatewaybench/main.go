// Command gatewaybench puts the gateway beside a bare reverse proxy in front of the same upstream:
// calls a second, the time of a lone caller, the first byte of a stream, streams that are cut short
// or held back, and memory under a thousand streams.
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/drawgate/drawgate/benchmarks/internal/stat"
	"github.com/drawgate/drawgate/benchmarks/internal/sysx"
)

var (
	reps     = flag.Int("reps", 5, "rounds; each has every contestant in every cell")
	dur      = flag.Duration("dur", 1200*time.Millisecond, "length of a cell")
	streams  = flag.Int("streams", 10_000, "streams that are compared byte for byte")
	seen     = flag.Int("seen", 500, "streams whose every event must be seen before the next one is sent")
	held     = flag.Int("held", 1000, "streams that run at the same time while memory is measured")
	hold     = flag.Duration("hold", 40*time.Second, "how long they run")
	only     = flag.String("only", ".", "regexp of cells")
	out      = flag.String("out", "results/gateway/speed.jsonl", "file of raw results; it must not exist")
	summary  = flag.String("summary", "results/gateway/speed.txt", "file of the table; it must not exist")
	bin      = flag.String("bin", ".bin", "folder of drawgate and gatewayparts")
	maxOther = flag.Float64("max-other", 0.3, "cores that other processes may use")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "gatewaybench:", err)
		os.Exit(1)
	}
}

// bench is a run.
type bench struct {
	*scene

	only *regexp.Regexp
	out  *stat.Out
	rows []stat.Row
}

func run() error {
	re, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	b := &bench{only: re}
	if b.out, err = stat.NewOut(*out); err != nil {
		return err
	}
	if b.scene, err = setUp(); err != nil {
		return err
	}
	defer b.stop()
	for rep := 1; rep <= *reps; rep++ {
		if err := b.round(rep); err != nil {
			return err
		}
	}
	for _, whole := range []func() error{b.compareStreams, b.seeEvents, b.holdStreams} {
		if err := whole(); err != nil {
			return err
		}
	}
	return b.writeTable()
}

// round measures every contestant in every cell once. Each round begins with another contestant.
func (b *bench) round(rep int) error {
	for _, c := range cells {
		if !b.only.MatchString(c.name) {
			continue
		}
		for i := range contestants {
			who := contestants[(i+rep)%len(contestants)]
			if err := b.measure(c, who, rep); err != nil {
				return fmt.Errorf("%s, %s: %w", c.name, who, err)
			}
		}
	}
	return nil
}

func (b *bench) put(name, cell string, rep int, m map[string]float64, note string) error {
	row := stat.Row{Section: "gateway", Name: name, Case: cell, Rep: rep, M: m, Note: note}
	b.rows = append(b.rows, row)
	return b.out.Put(row)
}

// gate keeps cells apart from other work on the machine.
func gate() sysx.Gate {
	return sysx.Gate{MaxOther: *maxOther, Patience: 10 * time.Second, Tries: 2}
}
