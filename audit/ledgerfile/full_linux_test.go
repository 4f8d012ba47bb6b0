package ledgerfile

import (
	"bytes"
	"log/slog"
	"os"
	"testing"

	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/outbound"
)

// swap makes w write to another file, and returns the one before.
func (w *Writer) swap(f *os.File) (before *os.File) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before, w.file = w.file, f
	return before
}

// TestFullDisk: calls go on when the disk is full, the log says so once, and an audit finds the
// gap.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	dir := t.TempDir()
	w, err := Open(dir, &Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	refuse := func() { w.Observer().Called(&outbound.Event{Upstream: "u", Outcome: outbound.NotGranted}) }
	refuse()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full here: ", err)
	}
	good := w.swap(full)
	refuse()
	refuse()
	w.swap(good)
	full.Close()
	refuse()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := audit.Replay(t.Context(), []string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.Lost() != 2 || r.Missing != 2 || r.Refused != 2 || r.Verdict != audit.Possible || len(r.Gaps) != 1 {
		t.Errorf("%d lines were lost, and the audit says %+v, want 2", w.Lost(), r)
	}
	if n := bytes.Count(log.Bytes(), []byte("an audit will find a gap")); n != 1 {
		t.Errorf("the log has %d lines about it, want 1: %s", n, log.String())
	}
}

// TestFullDiskUntilTheEnd: if no line could be written any more before the process ended, the audit
// knows.
//
// req: C1
func TestFullDiskUntilTheEnd(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	refuse := func() { w.Observer().Called(&outbound.Event{Upstream: "u", Outcome: outbound.NotGranted}) }
	refuse()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("there is no /dev/full here: ", err)
	}
	w.swap(full).Close()
	refuse()
	refuse()
	_ = w.Close() // it cannot be synchronized
	r, err := audit.Replay(t.Context(), []string{dir}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Missing != 1 || len(r.Gaps) != 1 || r.Refused != 1 || r.Verdict != audit.Possible {
		t.Errorf("%d lines were lost at the end, and the audit says %+v", w.Lost(), r)
	}
}
