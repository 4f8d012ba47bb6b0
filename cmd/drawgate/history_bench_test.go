package main

import (
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// BenchmarkHistory looks for one task in a hundred after 100,000 tasks within an hour.
//
// req: D5
func BenchmarkHistory(b *testing.B) {
	path := filepath.Join(b.TempDir(), "h.db")
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		b.Fatal(err)
	}
	plan, err := drawgate.Policy{Name: "tasks", Limits: []drawgate.Limit{{
		Name: "day", Kind: drawgate.Rolling,
		Amount: 1_000_000, Window: 24 * time.Hour,
	}}}.Compile()
	if err != nil {
		b.Fatal(err)
	}
	const tasks, batch = 100_000, 1000
	for i := range tasks / batch {
		takes, out := make([]store.Take, batch), make([]store.Verdict, batch)
		for k := range takes {
			task := "hourly"
			if k%100 == 0 {
				task = "nightly"
			}
			c := store.BucketCost{Key: drawgate.Key{Policy: "tasks", Name: "default"}, Plan: plan.Plan}
			c.N[0] = 1
			takes[k] = store.Take{
				Buckets: []store.BucketCost{c},
				Labels:  []drawgate.Label{{Name: "task", Value: task}, {Name: "id", Value: fmt.Sprint(i*batch + k)}},
			}
		}
		if err := s.Take(b.Context(), takes, out); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		b.Fatal(err)
	}
	b.Setenv("DRAWGATE_STORE", "sqlite://"+path)
	for b.Loop() {
		lines := 0
		a := &app{out: writes(func([]byte) { lines++ }), errOut: io.Discard}
		if err := a.history(b.Context(), &historyFlags{
			since: time.Hour, anyKey: true, anyTenant: true,
			labels: []string{"task=nightly"}, csv: true,
		}); err != nil {
			b.Fatal(err)
		}
		if lines == 0 {
			b.Fatal("nothing was found")
		}
	}
}

type writes func(p []byte)

func (w writes) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}
