package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/internal/regular"
)

// readFiles remembers the contents of the files that were read, so that a later change can be
// detected.
type readFiles struct {
	sums map[string][sha256.Size]byte // by path; zero for a file that could not be read
}

// note remembers the contents of a file; nil for one that could not be read.
func (r *readFiles) note(path string, data []byte) {
	if r.sums == nil {
		r.sums = map[string][sha256.Size]byte{}
	}
	sum := [sha256.Size]byte{}
	if data != nil {
		sum = sha256.Sum256(data)
	}
	r.sums[path] = sum
}

// file reads a file of at most so many bytes; of a larger one it returns one byte more.
func (r *readFiles) file(path string, most int64) ([]byte, error) {
	r.note(path, nil)
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	r.note(path, data)
	return data, nil
}

// maxForeign is how much of a file in another's format is compared.
const maxForeign = 16 << 20

// foreign records a file that another package reads, or all files in a directory and below. Names
// that begin with two dots are left out, because Kubernetes keeps the targets of its links there.
func (r *readFiles) foreign(path string) {
	entries, err := os.ReadDir(path)
	if err != nil {
		_, _ = r.file(path, maxForeign) // the package that reads it reports the error
		return
	}
	r.note(path, []byte{})
	for _, e := range entries {
		name := filepath.Join(path, e.Name())
		if strings.HasPrefix(e.Name(), "..") {
			continue
		}
		if e.IsDir() {
			r.foreign(name)
			continue
		}
		if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() {
			_, _ = r.file(name, maxForeign)
		}
	}
}

// same reports whether both have the same contents.
func (r *readFiles) same(other *readFiles) bool { return maps.Equal(r.sums, other.sums) }

// paths returns the files.
func (r *readFiles) paths() []string { return slices.Collect(maps.Keys(r.sums)) }
