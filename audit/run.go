package audit

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Prefix and Suffix are what the names of a ledger's files begin and end with, unless somebody
// renames them.
const (
	Prefix = "ledger-"
	Suffix = ".jsonl"
)

// Lost is what comes before [Suffix] in the name of a file after which lines could not be written.
const Lost = "-lost"

// longest is how long a line may be. Texts in it are names, of which the longest has 1024 bytes.
const longest = 64 << 10

// part is one file of a run.
type part struct {
	path   string
	size   int64
	header Line
}

// run reads the files of one run of a process, one after the other.
type run struct {
	info  Run
	parts []part
	file  *os.File
	in    *bufio.Reader
	parse parser
	line  Line // that was read last
	gaps  []Gap
	lost  int64 // lines, of all gaps
	bad   int64 // lines that could not be read
	open  map[callKey]*call

	marked bool // a file's name says that lines are missing
}

// runs finds the runs in files and folders, in the order in which they began.
func runs(paths []string) ([]*run, error) {
	byID := map[string]*run{}
	for _, path := range paths {
		files, folder, err := files(path)
		if err != nil {
			return nil, err
		}
		found := false
		for _, f := range files {
			p, err := readHeader(f)
			if folder && errors.Is(err, errOther) && !strings.HasPrefix(filepath.Base(f), Prefix) {
				continue
			}
			if err != nil {
				return nil, err
			}
			found = true
			if p == nil {
				continue
			}
			r := byID[p.header.Run]
			if r == nil {
				r = &run{info: Run{ID: p.header.Run, Host: p.header.Host}, open: map[callKey]*call{}}
				byID[p.header.Run] = r
			}
			r.parts = append(r.parts, *p)
			r.marked = r.marked || strings.HasSuffix(f, Lost+Suffix)
		}
		if !found {
			return nil, fmt.Errorf("audit: there is no ledger in %s: its files are named %s*%s", path, Prefix, Suffix)
		}
	}
	list := make([]*run, 0, len(byID))
	for _, r := range byID {
		// A file may have been named twice, in its folder too, or with a copy that was made while
		// it was written: the longest one counts.
		slices.SortFunc(r.parts, func(a, b part) int {
			return cmp.Or(cmp.Compare(a.header.Part, b.header.Part), cmp.Compare(b.size, a.size))
		})
		r.parts = slices.CompactFunc(r.parts, func(a, b part) bool { return a.header.Part == b.header.Part })
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b *run) int {
		return cmp.Or(cmp.Compare(a.parts[0].header.At, b.parts[0].header.At), cmp.Compare(a.info.ID, b.info.ID))
	})
	return list, nil
}

// files returns a file, or those of a folder that may be of a ledger.
func files(path string) (list []string, folder bool, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, false, fmt.Errorf("audit: the ledger cannot be read: %w", err)
	}
	if info.Mode().IsRegular() {
		return []string{path}, false, nil
	}
	if !info.IsDir() { // reading a named pipe might never end
		return nil, false, fmt.Errorf("audit: %s is neither a file nor a folder", path)
	}
	list, err = filepath.Glob(filepath.Join(escape(path), "*"+Suffix))
	list = slices.DeleteFunc(list, func(f string) bool {
		info, err := os.Stat(f)
		return err == nil && !info.Mode().IsRegular()
	})
	return list, true, err
}

// escape makes a path a pattern for itself alone.
func escape(path string) string {
	var b bytes.Buffer
	for _, c := range []byte(path) {
		if bytes.IndexByte([]byte(`*?[\`), c) >= 0 && filepath.Separator != '\\' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	return b.String()
}

// errOther is of a file of another kind, such as one of incidents, or whose first line is damaged.
var errOther = errors.New("its first line does not say what begins")

// readHeader reads the first line of a file. It returns nil for a file that was just begun when its
// process was killed.
func readHeader(path string) (*part, error) {
	f, err := os.Open(path) //nolint:gosec // the caller names it
	if err != nil {
		return nil, fmt.Errorf("audit: the ledger cannot be read: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	text, err := bufio.NewReaderSize(f, longest).ReadSlice('\n')
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // there is nothing in it
	}
	l := &Line{}
	if err != nil || (&parser{}).parse(text, l) != nil || l.Event != Opened || l.Run == "" {
		return nil, fmt.Errorf("audit: %s is not a file of a ledger: %w", path, errOther)
	}
	if l.Version > Version {
		return nil, fmt.Errorf("audit: %s was written by a later version (format %d, and this program reads up to %d): use that one", path, l.Version, Version)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("audit: the ledger cannot be read: %w", err)
	}
	return &part{path, info.Size(), *l}, nil
}

// next reads the next line. It is false at the end.
func (r *run) next() (bool, error) {
	for {
		if r.in == nil {
			if ok, err := r.openNext(); !ok || err != nil {
				return false, err
			}
		}
		text, err := r.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			r.bad++
			if err := r.skip(); err != nil {
				return false, err
			}
			continue
		case errors.Is(err, io.EOF):
			_ = r.file.Close() // it was only read
			r.in = nil
		case err != nil:
			return false, fmt.Errorf("audit: reading a ledger: %w", err)
		}
		before := r.line.N
		last := err != nil
		switch err := r.parse.parse(text, &r.line); {
		case err != nil && last: // it is empty, or was torn when the process was killed
			r.line.N = before
		case err != nil, r.line.N <= before:
			r.line.N = before
			r.bad++
		default:
			r.took(before)
			return true, nil
		}
	}
}

// openNext opens the next file.
func (r *run) openNext() (bool, error) {
	if len(r.parts) == 0 {
		return false, nil
	}
	f, err := os.Open(r.parts[0].path)
	if err != nil {
		return false, fmt.Errorf("audit: the ledger cannot be read: %w", err)
	}
	r.parts = r.parts[1:]
	r.file = f
	r.in = bufio.NewReaderSize(f, longest)
	return true, nil
}

// skip reads on to the end of a line that is too long.
func (r *run) skip() error {
	for {
		_, err := r.in.ReadSlice('\n')
		switch {
		case err == nil, errors.Is(err, io.EOF): // the next read finds the end again
			return nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return fmt.Errorf("audit: reading a ledger: %w", err)
		}
	}
}

// maxGaps is how many gaps of a run are listed.
const maxGaps = 100

// took counts a line.
func (r *run) took(before uint64) {
	l, i := &r.line, &r.info
	at := time.Unix(0, l.At)
	if i.Lines == 0 {
		i.From, i.FirstLine = at, l.N
	} else if n := int64(l.N - before - 1); n > 0 {
		r.lost += n
		if len(r.gaps) < maxGaps {
			r.gaps = append(r.gaps, Gap{i.ID, before, n, i.Until, at})
		}
	}
	i.Lines++
	if at.After(i.Until) {
		i.Until = at
	}
	i.Closed = l.Event == Closed
}

// end counts the lines that are missing at the end of the run: at least one.
func (r *run) end() {
	if r.marked && r.lost == 0 {
		r.lost++
		r.gaps = append(r.gaps, Gap{r.info.ID, r.line.N, 1, r.info.Until, r.info.Until})
	}
}

// close ends reading before its end.
func (r *run) close() {
	if r.in != nil {
		_ = r.file.Close() // it was only read
	}
}
