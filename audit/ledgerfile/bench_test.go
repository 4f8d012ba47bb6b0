package ledgerfile_test

import (
	"sync/atomic"
	"testing"

	"github.com/drawgate/drawgate/audit/ledgerfile"
)

// BenchmarkCall is what a ledger costs a call: the line before it, and the one after it.
func BenchmarkCall(b *testing.B) {
	dir := b.TempDir()
	b.Run("one", func(b *testing.B) {
		w := openBench(b, dir)
		b.ReportAllocs()
		id := uint64(0)
		for b.Loop() {
			id++
			call(w, id)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		w := openBench(b, dir)
		b.ReportAllocs()
		var id atomic.Uint64
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				call(w, id.Add(1))
			}
		})
	})
}

func openBench(b *testing.B, dir string) *ledgerfile.Writer {
	b.Helper()
	w, err := ledgerfile.Open(dir, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Close() })
	return w
}
