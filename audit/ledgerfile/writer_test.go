package ledgerfile_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/audit"
	"github.com/drawgate/drawgate/audit/ledgerfile"
	"github.com/drawgate/drawgate/outbound"
	"github.com/drawgate/drawgate/store/memstore"
)

var quotas = []audit.Quota{{Name: "all", Limits: []audit.Limit{{
	Name: "rpm", Amount: 1_000_000,
	Window: audit.Rolling,
}}}}

func open(t *testing.T, dir string, opts *ledgerfile.Options) *ledgerfile.Writer {
	t.Helper()
	w, err := ledgerfile.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func replay(t *testing.T, dir string) *audit.Report {
	t.Helper()
	r, err := audit.Replay(t.Context(), []string{dir}, quotas, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// call writes a call from its beginning to its end.
func call(w *ledgerfile.Writer, id uint64) {
	e := begin(w, id)
	e.Sent, e.Answered, e.Ended, e.Status = time.Now(), time.Now(), time.Now(), 200
	e.Used = e.Estimate
	w.Observer().Ended(e)
	w.Observer().Called(e)
}

// begin writes that a call was granted.
func begin(w *ledgerfile.Writer, id uint64) *outbound.Event {
	e := &outbound.Event{
		ID: id, Upstream: "u", Owner: "o", Model: "m", Granted: time.Now(),
		Estimate: []drawgate.Cost{drawgate.Units("requests", 1), drawgate.Units("tokens", 1000)},
	}
	w.Observer().Granted(e)
	return e
}

func parts(t *testing.T, dir string) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+audit.Suffix))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestNothingIsLostBetweenFiles: calls by many goroutines fill many files, and every line is there,
// in order.
func TestNothingIsLostBetweenFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, &ledgerfile.Options{PartSize: 2000})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for k := range 50 {
				call(w, uint64(1000*i+k+1))
			}
		})
	}
	group.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r := replay(t, dir)
	if n := len(parts(t, dir)); n < 5 {
		t.Errorf("%d files, want many", n)
	}
	if r.Verdict != audit.Within || r.Calls != 200 || r.Settled != 200 || len(r.Runs) != 1 || !r.Runs[0].Closed ||
		r.Limits[0].Most.Units != 200 {
		t.Errorf("got %+v", r)
	}
}

// TestOldFilesAreDeleted: if all together are too large, and by their age.
func TestOldFilesAreDeleted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	old, other := filepath.Join(dir, "ledger-old"+audit.Suffix), filepath.Join(dir, "notes.txt")
	for _, path := range []string{old, other} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		past := time.Now().Add(-36 * 24 * time.Hour)
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	w := open(t, dir, &ledgerfile.Options{PartSize: 1, MaxSize: 3 << 20})
	for i := range 10 {
		call(w, uint64(i+1))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(parts(t, dir)); n != 3 {
		t.Errorf("%d files, want 3", n)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another file was deleted: %v", err)
	}
	// What was deleted is no gap: the ledger begins later.
	if r := replay(t, dir); r.Missing != 0 || r.Runs[0].FirstLine < 10 {
		t.Errorf("got %+v", r)
	}
}

// TestRestartsDeleteNothing: a process that starts again and again leaves the ledger of the others.
func TestRestartsDeleteNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, nil)
	call(w, 1)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		if err := open(t, dir, nil).Close(); err != nil {
			t.Fatal(err)
		}
	}
	if r := replay(t, dir); r.Calls != 1 || len(r.Runs) != 301 {
		t.Errorf("%d calls of %d runs are left, want 1 of 301", r.Calls, len(r.Runs))
	}
}

// TestMissingLinesAreAGap: a line that is missing, or damaged, makes the verdict uncertain.
func TestMissingLinesAreAGap(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(lines [][]byte) [][]byte
		verdict audit.Verdict
		missing int64
		damaged int64
	}{
		"whole":       {func(l [][]byte) [][]byte { return l }, audit.Within, 0, 0},
		"torn at end": {func(l [][]byte) [][]byte { return append(l[:6:6], l[6][:20]) }, audit.Within, 0, 0},
		"one missing": {func(l [][]byte) [][]byte { return append(l[:3:3], l[4:]...) }, audit.Possible, 1, 0},
		"torn in between": {func(l [][]byte) [][]byte {
			l[3] = append(l[3][:20:20], '\n')
			return l
		}, audit.Possible, 1, 1},
		"a long line": {func(l [][]byte) [][]byte {
			l[3] = append(bytes.Repeat([]byte("x"), 100_000), '\n')
			return l
		}, audit.Possible, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			w := open(t, dir, nil)
			for i := range 5 {
				call(w, uint64(i+1))
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			path := parts(t, dir)[0]
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			lines := bytes.SplitAfter(text, []byte("\n"))
			if err := os.WriteFile(path, bytes.Join(c.change(lines), nil), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := replay(t, dir); r.Verdict != c.verdict || r.Missing != c.missing || r.Damaged != c.damaged {
				t.Errorf("got %q, %d missing, %d damaged, want %q, %d, %d", r.Verdict, r.Missing, r.Damaged, c.verdict,
					c.missing, c.damaged)
			}
		})
	}
}

// TestRunningCallsAreShown: while calls run, there is a line at least every ten seconds, so that an
// audit knows how long a killed process lived; and none is written while nothing happens.
func TestRunningCallsAreShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := open(t, dir, nil)
		e := begin(w, 1)
		time.Sleep(time.Minute)
		synctest.Wait()
		running := replay(t, dir)
		if age := time.Since(running.Until); running.Lines < 8 || age > audit.AliveEvery*time.Second ||
			running.Unended != 1 {
			t.Errorf("got %d lines, the last one %v old, want one at least every %d seconds", running.Lines, age,
				audit.AliveEvery)
		}
		e.Sent, e.Ended = time.Now(), time.Now()
		w.Observer().Ended(e)
		lines := replay(t, dir).Lines
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := replay(t, dir).Lines; n != lines {
			t.Errorf("%d lines were written while nothing happened", n-lines)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// childEnv names the folder of the ledger that this test's own program writes when it is started
// again.
const childEnv = "LEDGERFILE_TEST_DIR"

// TestKilledProcess: a process that is killed in the middle of many calls has written each of them
// before it was sent.
//
// req: A1
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv(childEnv); dir != "" {
		callForever(open(t, dir, &ledgerfile.Options{PartSize: 20_000}))
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKilledProcess$")
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	sent := map[string]bool{}
	in := bufio.NewScanner(pipe)
	for in.Scan() {
		if id, ok := strings.CutPrefix(in.Text(), "sent "); ok && !strings.Contains(id, " ") {
			sent[id] = true
		}
		if len(sent) == 500 {
			_ = cmd.Process.Kill() // what it has printed meanwhile is read too
		}
	}
	_ = cmd.Wait() // it was killed
	if len(sent) < 500 {
		t.Fatalf("the process ended by itself after %d calls", len(sent))
	}
	written := map[string]bool{}
	for _, path := range parts(t, dir) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			if l, err := audit.ParseLine(line); err == nil && l.Event == audit.Reserved {
				written[strconv.FormatUint(l.Call, 10)] = true
			}
		}
	}
	for id := range sent {
		if _, err := strconv.Atoi(id); err == nil && !written[id] {
			t.Errorf("call %s was sent, and is not in the ledger", id)
		}
	}
	if r := replay(t, dir); r.Missing != 0 || r.Damaged != 0 || r.Orphans != 0 || r.Verdict != audit.Within ||
		int(r.Calls) < len(sent)-1 {
		t.Errorf("got %d calls, %d missing, %d damaged, %d orphans, %q, for %d calls", r.Calls, r.Missing, r.Damaged,
			r.Orphans, r.Verdict, len(sent))
	}
}

// callForever makes calls in four goroutines until this process is killed.
func callForever(w *ledgerfile.Writer) {
	for i := range 4 {
		go func() {
			for id := uint64(i + 1); ; id += 4 {
				e := begin(w, id)
				fmt.Fprintf(os.Stdout, "sent %d\n", id) // one write
				e.Sent, e.Answered, e.Ended, e.Used = time.Now(), time.Now(), time.Now(), e.Estimate
				if id%3 != 0 {
					w.Observer().Ended(e)
				}
			}
		}()
	}
	select {}
}

// watched is a quota whose grants call before they are settled.
type watched struct {
	outbound.Quota
	before func()
}

type watchedGrant struct {
	outbound.Grant
	before func()
}

func (q watched) Take(ctx context.Context, c *outbound.Call, hold time.Duration) (outbound.Grant, error) {
	g, err := q.Quota.Take(ctx, c, hold)
	return watchedGrant{g, q.before}, err
}

func (g watchedGrant) Settle(ctx context.Context, used ...drawgate.Cost) error {
	g.before()
	return g.Grant.Settle(ctx, used...)
}

// TestEndsAreWrittenBeforeTheyAreSettled: what a call gives back may be used by another process
// before this one is killed, so the ledger must say by then that it was given back. Otherwise an
// audit counts it twice, and doubts a quota that was kept.
//
// req: C1
func TestEndsAreWrittenBeforeTheyAreSettled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := open(t, dir, nil)
	store := memstore.New(nil)
	l, err := drawgate.New(store, drawgate.Policy{
		Name:   "m",
		Limits: []drawgate.Limit{drawgate.RollingLimit("rpm", 10, time.Minute)},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); l.Close(); store.Close() })
	ends := int64(0)
	quota := watched{outbound.PerModel("o", l), func() {
		ends++
		if r := replay(t, dir); r.Calls != ends || r.Settled+r.Refunded != ends || r.Unended != 0 {
			t.Errorf("settlement %d: the ledger has %d calls, %d settled, %d refunded, %d without an end", ends,
				r.Calls, r.Settled, r.Refunded, r.Unended)
		}
	}}
	c := outbound.New(quota, &outbound.Options{Upstream: "u", Observer: w.Observer()})
	for _, failure := range []error{
		nil, io.ErrUnexpectedEOF,
		&outbound.RefusedError{Until: time.Now().Add(time.Millisecond)},
	} {
		_, _ = outbound.Do(t.Context(), c, outbound.Call{Model: "m"},
			func(context.Context) (int, []drawgate.Cost, error) { return 0, nil, failure })
	}
	if ends != 3 {
		t.Errorf("%d calls were settled, want 3", ends)
	}
}

// TestDeletedFolder: a folder that is deleted while the ledger is written is made again, and the
// log says so once.
func TestDeletedFolder(t *testing.T) {
	t.Parallel()
	for name, deleted := range map[string]func(dir string) error{
		"the folder": os.RemoveAll,
		"the file":   func(dir string) error { return os.Remove(parts(t, dir)[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if runtime.GOOS == "windows" {
				t.Skip("Windows does not delete files that are open")
			}
			synctest.Test(t, func(t *testing.T) {
				var log bytes.Buffer
				dir := filepath.Join(t.TempDir(), "ledger")
				w := open(t, dir, &ledgerfile.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				call(w, 1)
				if err := deleted(dir); err != nil {
					t.Fatal(err)
				}
				for id := range uint64(3) {
					time.Sleep(time.Second)
					call(w, id+2)
				}
				if err := w.Close(); err != nil {
					t.Fatal(err)
				}
				if r := replay(t, dir); r.Calls != 3 || r.Lines < 8 { // and those that tell what the store has heard
					t.Errorf("the audit says %+v, want the last 3 calls", r)
				}
				if n := strings.Count(log.String(), "deleted or renamed while it was written"); n != 1 {
					t.Errorf("the log has %d lines about it, want 1: %s", n, log.String())
				}
			})
		})
	}
}
