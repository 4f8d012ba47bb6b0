package boltstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/examples/boltstore"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/storetest"
)

// clocked is a store with a clock that stands still until the suite moves it.
type clocked struct {
	*boltstore.Store
	now *atomic.Int64 // Unix µs
}

func open(t *testing.T) store.Store {
	t.Helper()
	now := &atomic.Int64{}
	now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
	s, err := boltstore.Open(filepath.Join(t.TempDir(), "buckets"), &boltstore.Options{
		Now:    func() time.Time { return time.UnixMicro(now.Load()) },
		NoSync: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return clocked{s, now}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Harness{
		New:     open,
		Advance: func(s store.Store, d time.Duration) { s.(clocked).now.Add(d.Microseconds()) },
	})
}

func take(t *testing.T, s store.Store, n int64) (store.Verdict, error) {
	t.Helper()
	plan, err := drawgate.PerDay("api", 10).Compile()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]store.Verdict, 1)
	bucket := store.BucketCost{Key: store.Key{Policy: "api", Name: "k"}, Plan: plan.Plan, N: store.Amounts{n}}
	err = s.Take(t.Context(), []store.Take{{Buckets: []store.BucketCost{bucket}}}, out)
	return out[0], errors.Join(err, out[0].Fail)
}

func TestWhatIsUsedSurvivesARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "buckets")
	for _, want := range []int64{6, 2} {
		s, err := boltstore.Open(path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := take(t, s, 4); err != nil || d.First.Limits[0].Remaining != want {
			t.Errorf("remaining %d, %v; want %d", d.First.Limits[0].Remaining, err, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSweepDeletesOnlyWhatIsUnused(t *testing.T) {
	t.Parallel()
	s := open(t).(clocked)
	if _, err := take(t, s, 4); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		after time.Duration
		keys  int
	}{{24*time.Hour - time.Microsecond, 1}, {time.Microsecond, 0}} {
		s.now.Add(c.after.Microseconds())
		if err := s.Sweep(); err != nil {
			t.Fatal(err)
		}
		if got := s.Entries(t); got != c.keys {
			t.Errorf("%d entries, want %d", got, c.keys)
		}
	}
}

// A damaged record concerns its own bucket, and is never taken for an unused one.
func TestADamagedRecordIsNoUnusedBucket(t *testing.T) {
	t.Parallel()
	s := open(t).(clocked)
	if _, err := take(t, s, 4); err != nil {
		t.Fatal(err)
	}
	s.Damage(t)
	d, err := take(t, s, 4)
	if stored, ok := errors.AsType[*store.Error](err); !ok || d.Allowed || stored.Fault != store.FaultBucket {
		t.Errorf("allowed %v, %v; want a StoreError of the bucket", d.Allowed, err)
	}
	if err := s.Sweep(); err != nil || s.Entries(t) != 1 {
		t.Errorf("after a sweep %d entries, %v; want 1: it must not be forgotten", s.Entries(t), err)
	}
}

// TestREADME: the tutorial shows this code, not some other.
func TestREADME(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(string(b)), " ")
	}
	code := read("boltstore.go") + read("boltstore_test.go")
	parts := strings.Split(read("README.md"), "```")
	for i := 1; i < len(parts); i += 2 {
		block, isGo := strings.CutPrefix(parts[i], "go ")
		if isGo && !strings.Contains(code, strings.TrimSpace(block)) {
			t.Errorf("the code has no such lines: %s", block)
		}
	}
	if len(parts) < 9 {
		t.Errorf("README.md has %d blocks of code, want at least 4", len(parts)/2)
	}
}
