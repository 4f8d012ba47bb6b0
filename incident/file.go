package incident

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/regular"
)

// The file has one line of JSON per incident, as [api.Incident], and lines that replace its count
// later. When it is full it is renamed to have the suffix .1, and replaces the one that has it.
const (
	maxFile = 8 << 20 // bytes
	maxLine = 1 << 20
	older   = ".1"
	perm    = 0o600 // it shows what an account is used for
)

// line is a line of the file: an incident, or what has changed about one.
type line struct {
	api.Incident

	Update string `json:"update,omitempty"` // id of an incident; then only the fields of change are set
}

// change is a line that updates an incident.
type change struct {
	Update    string     `json:"update"`
	Count     int64      `json:"count"`
	Last      time.Time  `json:"last"`
	Until     *time.Time `json:"until,omitempty"`
	NotPaused bool       `json:"not_paused,omitempty"`
}

// file is an append-only file. It is opened for each line, which are few, so that it may be moved,
// deleted or rotated by others at any time. Several processes may write to one.
type file struct {
	path string
	most int64 // bytes
}

// tries is how often a file is opened that somebody else has renamed meanwhile.
const tries = 10

// append writes v as one line, and waits until the disk has it.
func (f *file) append(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("incident: encode: %w", err)
	}
	for range tries {
		done, err := f.try(append(text, '\n'))
		if err != nil {
			return fmt.Errorf("incident: append to the file: %w", err)
		}
		if done {
			return nil
		}
	}
	return fmt.Errorf("incident: append to the file: %s is renamed again and again: does another program rotate it?",
		f.path)
}

// try opens the file and writes a line. It is not done if the file was, or had to be, renamed.
func (f *file) try(text []byte) (done bool, err error) {
	w, err := openFile(f.path)
	if err != nil {
		return false, err
	}
	defer func() {
		if e := w.Close(); err == nil {
			err = e
		}
	}()
	if err := lock(w); err != nil {
		return false, &fs.PathError{Op: "lock", Path: f.path, Err: err}
	}
	info, err := w.Stat()
	if err != nil {
		return false, err
	}
	if now, err := os.Stat(f.path); err != nil || !os.SameFile(info, now) {
		return false, nil // it was renamed or deleted before it was locked
	}
	size := info.Size()
	if size > 0 && size+int64(len(text)) > f.most {
		return false, os.Rename(f.path, f.path+older)
	}
	return true, write(w, text, size)
}

// openFile opens a file for appending, and creates it.
func openFile(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // opening a named pipe would wait
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	} else if errors.Is(err, fs.ErrNotExist) {
		defer syncFolder(filepath.Dir(path))
	}
	return os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, perm) //nolint:gosec // the configuration names it
}

// syncFolder makes a new file last. A system that cannot do it for folders does without.
func syncFolder(path string) {
	if d, err := os.Open(path); err == nil { //nolint:gosec // as above
		_ = d.Sync()  // as above
		_ = d.Close() // nothing was written
	}
}

// write appends a line to a file of that size, in one write. A line that was cut off before, when
// the disk was full or the process was killed, stays a line of its own.
func write(w *os.File, text []byte, size int64) error {
	if size > 0 {
		var last [1]byte
		if _, err := w.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			text = append([]byte{'\n'}, text...)
		}
	}
	if _, err := w.Write(text); err != nil {
		_ = w.Truncate(size) // what is left of the line would be skipped too
		return err
	}
	return w.Sync()
}

// usable returns why a file cannot be written, as far as that can be found out without creating it.
func usable(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if info, err = os.Stat(filepath.Dir(path)); err == nil && !info.IsDir() {
			err = &fs.PathError{Op: "open", Path: path, Err: errors.New("its folder is a file")}
		}
		return err
	}
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "open", Path: path, Err: errors.New("it is not a regular file")}
	}
	w, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, perm) //nolint:gosec // as above
	if err != nil {
		return err
	}
	return w.Close()
}

// Read reads the incidents of a file and of the older one beside it, the oldest first. skipped is
// how many lines are not incidents: a line that was cut off by a full disk or the end of a process.
// A file that is not there is an [fs.ErrNotExist].
func Read(path string) (list []api.Incident, skipped int, err error) {
	// The newer one is opened first: if it is renamed now, its lines are read twice, rather than
	// not at all.
	newer, err := regular.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("incident: read the file: %w", err)
	}
	if err == nil {
		defer newer.Close() //nolint:errcheck // it was only read
	}
	old, olderErr := regular.Open(path + older)
	if olderErr != nil && !errors.Is(olderErr, fs.ErrNotExist) {
		return nil, 0, fmt.Errorf("incident: read the file: %w", olderErr)
	}
	if err != nil && olderErr != nil {
		return nil, 0, fmt.Errorf("incident: read the file: %w", err)
	}
	p := parser{at: map[string]int{}}
	if olderErr == nil {
		defer old.Close() //nolint:errcheck // it was only read
		if err := p.read(old); err != nil {
			return nil, 0, fmt.Errorf("incident: read the file: %w", err)
		}
	}
	if err == nil {
		if err := p.read(newer); err != nil {
			return nil, 0, fmt.Errorf("incident: read the file: %w", err)
		}
	}
	return p.list, p.skipped, nil
}

// parser reads lines.
type parser struct {
	list    []api.Incident
	at      map[string]int // by id
	skipped int
}

func (p *parser) read(from io.Reader) error {
	// Twice what is written: a file that somebody else fills is not read to its end.
	b := bufio.NewReaderSize(io.LimitReader(from, 2*maxFile), maxLine)
	for {
		text, err := b.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			p.skipped++
			for errors.Is(err, bufio.ErrBufferFull) {
				_, err = b.ReadSlice('\n')
			}
		} else {
			p.line(bytes.TrimSpace(text))
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// line adds a line.
func (p *parser) line(text []byte) {
	if len(text) == 0 {
		return
	}
	var l line
	if json.Unmarshal(text, &l) != nil || l.Update == "" && (l.ID == "" || l.At.IsZero()) {
		p.skipped++
		return
	}
	if l.Update != "" {
		if i, ok := p.at[l.Update]; ok { // otherwise its incident was rotated away
			to := &p.list[i]
			to.Count, to.Last, to.Until, to.NotPaused = l.Count, l.Last, l.Until, l.NotPaused
		}
		return
	}
	if i, twice := p.at[l.ID]; twice {
		p.list[i] = l.Incident
		return
	}
	p.at[l.ID] = len(p.list)
	p.list = append(p.list, l.Incident)
}
