package audit_test

import (
	"bufio"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// BenchmarkReplay is an audit of two gateways' ledgers, with a hundred calls a second.
func BenchmarkReplay(b *testing.B) {
	const lines = 200_000
	dir := b.TempDir()
	for _, run := range []string{"A", "B"} {
		writeCalls(b, filepath.Join(dir, run+audit.Suffix), run, lines/2)
	}
	quotas := []audit.Quota{{Name: "gpt", Policy: "gpt", Shared: true, Limits: []audit.Limit{
		{Name: "rpm", Amount: 7000, Window: audit.Rolling},
		{Name: "tpm", Unit: "tokens", Amount: 10_000_000, Window: audit.Rolling},
		{Name: "rpd", Amount: 10_000_000, Window: audit.Day},
	}}}
	b.ReportAllocs()
	for b.Loop() {
		r, err := audit.Replay(b.Context(), []string{dir}, quotas, nil)
		if err != nil || r.Verdict != audit.Within || r.Lines != lines {
			b.Fatal(r, err)
		}
	}
	b.ReportMetric(lines*float64(b.N)/b.Elapsed().Seconds(), "lines/s")
}

// writeCalls writes a run of calls that each take a second.
func writeCalls(b *testing.B, path, run string, lines int) {
	b.Helper()
	f, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	w := bufio.NewWriter(f)
	n, now := uint64(0), time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC).UnixNano()
	put := func(l audit.Line) {
		n++
		l.N, l.At = n, now
		w.Write(l.Append(nil))
	}
	put(audit.Line{Event: audit.Opened, Version: 1, Run: run, Host: run, Part: 1})
	const under = 50 // calls that run at once
	granted := map[uint64]int64{}
	for id := uint64(1); n < uint64(lines); id++ {
		now += int64(20 * time.Millisecond)
		granted[id] = now - 1000
		put(audit.Line{
			Event: audit.Reserved, Call: id, Upstream: "openai", Owner: "project-1", Model: "gpt-4.1",
			Policy: "gpt", Granted: granted[id], Reserved: []audit.Amount{
				{Unit: "requests", N: 1},
				{Unit: "tokens", N: 1500},
			},
		})
		if old := id - under; id > under && n < uint64(lines) {
			put(audit.Line{
				Event: audit.Settled, Call: old, Upstream: "openai", Granted: granted[old], Sent: granted[old] + 2000,
				Answered: granted[old] + 500_000_000, Ended: now - 1000,
				Outcome: "succeeded", Status: 200, Used: []audit.Amount{
					{Unit: "requests", N: 1},
					{Unit: "tokens", N: 900},
				}, Reported: audit.ReportedAll,
			})
			delete(granted, old)
		}
	}
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
}
