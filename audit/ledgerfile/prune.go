package ledgerfile

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/drawgate/drawgate/audit"
)

// leastSize is what a file counts as at least, so that there are not too many.
const leastSize = 1 << 20

// prune deletes files that are too old, and the oldest if all together are too large, of this and
// of other processes. A process that starts again and again makes many small files: they must not
// take the place of large ones. What cannot be deleted stays. The caller holds mu.
func (w *Writer) prune(now time.Time) {
	type old struct {
		path string
		at   time.Time
		size int64
	}
	entries, err := os.ReadDir(w.dir)
	if err != nil {
		w.report(err, now)
		return
	}
	var list []old
	var all int64
	for _, e := range entries {
		if ok, _ := filepath.Match(audit.Prefix+"*"+audit.Suffix, e.Name()); !ok || e.IsDir() {
			continue
		}
		info, err := e.Info()
		if err != nil {
			continue // another process has deleted it
		}
		f := old{filepath.Join(w.dir, e.Name()), info.ModTime(), max(info.Size(), leastSize)}
		list, all = append(list, f), all+f.size
	}
	slices.SortFunc(list, func(a, b old) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.path, b.path)) })
	for _, f := range list {
		if (all > w.opts.MaxSize || now.Sub(f.at) > w.opts.MaxAge) && f.path != w.file.Name() {
			all -= f.size
			_ = os.Remove(f.path) // the next file tries again
		}
	}
}
