package ledgerfile

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// prune deletes files that are too old, and the oldest if there are too many, of this and of other
// processes. What cannot be deleted stays. The caller holds mu.
func (w *Writer) prune(now time.Time) {
	type old struct {
		path string
		at   time.Time
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.report(err, now)
		return
	}
	var list []old
	for _, e := range entries {
		if ok, _ := filepath.Match("ledger-*"+audit.Suffix, e.Name()); !ok || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // another process has deleted it
		}
		list = append(list, old{filepath.Join(w.dir, e.Name()), info.ModTime()})
	}
	slices.SortFunc(list, func(a, b old) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path)) })
	extra := len(list) - w.opts.MaxParts
	for i, f := range list {
		if (i < extra || now.Sub(f.at) > w.opts.MaxAge) && f.path != w.file.Name() {
			_ = os.Remove(f.path) // the next file tries again
		}
	}
}
