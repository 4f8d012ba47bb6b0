package incident_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/incident"
)

const plenty = 1 << 20 // bytes of a file

// numbered returns an incident whose id has a number.
func numbered(n int) *api.Incident {
	at := time.Date(2026, 7, 1, 12, 0, n, 0, time.UTC)
	return &api.Incident{
		ID: fmt.Sprintf("i%05d", n), At: at, Last: at, Until: new(at.Add(time.Minute)),
		Upstream: "openai", Count: 1,
	}
}

func ids(list []api.Incident) (all []string) {
	for i := range list {
		all = append(all, list[i].ID)
	}
	return all
}

// wantFile reads a file, and compares the ids and the number of lines that were skipped.
func wantFile(t *testing.T, path string, skipped int, want ...string) []api.Incident {
	t.Helper()
	list, n, err := incident.Read(path)
	if err != nil || n != skipped || !slices.Equal(ids(list), want) {
		t.Fatalf("got %v, %d skipped, %v; want %v, %d skipped", ids(list), n, err, want, skipped)
	}
	return list
}

// TestTornLineStaysAlone: a line that was cut off is skipped, and the next one is whole.
//
// req: A14
func TestTornLineStaysAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	whole, err := json.Marshal(numbered(2))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, 2, len(whole) / 2, len(whole) - 2, len(whole) - 1} {
		path := filepath.Join(dir, fmt.Sprint(cut))
		if err := incident.Append(path, plenty, numbered(1)); err != nil {
			t.Fatal(err)
		}
		if err := appendText(path, string(whole[:cut])); err != nil {
			t.Fatal(err)
		}
		if err := incident.Append(path, plenty, numbered(3)); err != nil {
			t.Fatal(err)
		}
		wantFile(t, path, min(cut, 1), "i00001", "i00003")
	}
}

// TestFile: only its owner can read it; a later line replaces a count; a file that is not there is
// an error that says so; a folder and a file without a folder are errors, and nothing is created.
func TestFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if _, _, err := incident.Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	in := numbered(1)
	if err := incident.Append(path, plenty, in); err != nil {
		t.Fatal(err)
	}
	in.Count, in.Last, in.Until, in.NotPaused = 17, in.Last.Add(time.Hour), new(in.Last.Add(2*time.Hour)), true
	if err := incident.Change(path, plenty, in); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(*in, wantFile(t, path, 0, in.ID)[0]); diff != "" {
		t.Errorf("(-changed +read)\n%s", diff)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 {
		t.Errorf("%v, %v: others can read it", info.Mode(), err)
	}
	if err := incident.Append(dir, plenty, in); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("a folder: %v", err)
	}
	if err := incident.Append(filepath.Join(dir, "none", "f"), plenty, in); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

// TestRotation: a full file makes room for a new one, and both are read; one more is forgotten. No
// two of them are larger than they may be.
func TestRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	const most = 1000
	for n := range 50 {
		if err := incident.Append(path, most, numbered(n)); err != nil {
			t.Fatal(err)
		}
		for _, p := range []string{path, path + ".1"} {
			if info, err := os.Stat(p); err == nil && info.Size() > most {
				t.Fatalf("%s has %d bytes", p, info.Size())
			}
		}
		list, skipped, err := incident.Read(path)
		if err != nil || skipped != 0 || len(list) == 0 {
			t.Fatal(list, skipped, err)
		}
		for i := range list { // the latest ones, without a gap
			if want := numbered(n - len(list) + 1 + i).ID; list[i].ID != want {
				t.Fatalf("after %d: got %v", n, ids(list))
			}
		}
		if err := incident.Change(path, most, numbered(0)); err != nil { // of an incident that may be gone
			t.Fatal(err)
		}
	}
	// Somebody else may move the newer one away.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if list, _, err := incident.Read(path); err != nil || len(list) == 0 {
		t.Errorf("only the older one: %v, %v", ids(list), err)
	}
}

// TestTwoWriters: two gateways with one file lose nothing, and neither do they while it is full.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f")
	const each = 100
	size, err := json.Marshal(numbered(0))
	if err != nil {
		t.Fatal(err)
	}
	most := int64(len(size)+1) * each * 3 / 2 // it is full once
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for n := range each {
				if err := incident.Append(path, most, numbered(w*each+n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	list, skipped, err := incident.Read(path)
	if err != nil || skipped != 0 || len(list) != 2*each {
		t.Errorf("%d incidents, %d skipped, %v; want %d", len(list), skipped, err, 2*each)
	}
	if _, err := os.Stat(path + ".1"); err != nil {
		t.Errorf("it was never full: %v", err)
	}
}

// FuzzRead: whatever is in the file, reading it ends without an error, and what it returns can be
// listed: it has an id and a time.
func FuzzRead(f *testing.F) {
	whole, err := json.Marshal(numbered(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(whole, '\n'))
	f.Add(append(whole, `{"update":"i00001","count":3,"last":"2026-07-01T12:00:00Z"}`...))
	f.Add([]byte("\n\nnull\n[]\n{}\n\x00{\"id\":\"x\"}\r\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		list, skipped, err := incident.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(string(text), "\n") + 1; len(list)+skipped > lines {
			t.Errorf("%d incidents and %d skipped of %d lines", len(list), skipped, lines)
		}
		seen := map[string]bool{}
		for i := range list {
			if list[i].ID == "" || list[i].At.IsZero() || seen[list[i].ID] {
				t.Errorf("%+v", list[i])
			}
			seen[list[i].ID] = true
		}
	})
}

// A line that is longer than any incident is skipped, and the next one is read.
func TestLongLineIsSkipped(t *testing.T) {
	t.Parallel()
	whole, err := json.Marshal(numbered(1))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 3<<20) + "\n" + string(whole)
	if list, skipped, err := incident.Parse([]byte(text)); err != nil || len(list) != 1 || skipped != 1 {
		t.Errorf("%v, %d skipped, %v", ids(list), skipped, err)
	}
}

// TestFileIsWhatWasWritten: incidents, changes and torn lines in any order are read as a model of
// them says. There are few steps, because each waits for the disk.
func TestFileIsWhatWasWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files := 0
	rapid.Check(t, func(t *rapid.T) {
		files++
		path := filepath.Join(dir, fmt.Sprint(files))
		want := []api.Incident{*numbered(0)}
		if err := incident.Append(path, plenty, &want[0]); err != nil {
			t.Fatal(err)
		}
		torn, open := 0, false // open: the last line is torn
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"new", "change", "torn", "torn"}), 1, 6).Draw(t,
			"steps") {
			var err error
			switch step {
			case "new":
				want = append(want, *numbered(len(want)))
				err = incident.Append(path, plenty, &want[len(want)-1])
			case "change":
				in := &want[rapid.IntRange(0, len(want)-1).Draw(t, "which")]
				in.Count += rapid.Int64Range(1, 100).Draw(t, "more")
				err = incident.Change(path, plenty, in)
			case "torn":
				if !open {
					torn++
				}
				err = appendText(path, rapid.StringMatching(`\{[a-z":]{0,20}`).Draw(t, "part"))
			}
			open = step == "torn"
			if err != nil {
				t.Fatal(err)
			}
		}
		got, skipped, err := incident.Read(path)
		if diff := cmp.Diff(want, got); err != nil || skipped != torn || diff != "" {
			t.Fatalf("%v, %d skipped, want %d; (-want +got)\n%s", err, skipped, torn, diff)
		}
	})
}

// appendText writes what another program, or a killed one, might.
func appendText(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
