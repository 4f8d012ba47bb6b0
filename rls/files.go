package rls

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/drawgate/drawgate/internal/regular"
)

// Skipped is an entry of a directory that [Load] has not read.
type Skipped struct{ Path, Why string }

// Skipped returns what was not read, in the order of the directories.
func (c *Config) Skipped() []Skipped { return c.skipped }

// Load reads files, and every file in directories and their subdirectories, whatever its name, as
// envoyproxy/ratelimit does. It follows links to files. It skips links to directories, dangling
// links, anything that is not a regular file, and names that begin with two dots, which Kubernetes
// uses for the targets of its links: see [Config.Skipped]. opts may be nil. The error is a
// [ConfigErrors], or says why a path could not be read; a directory without files is an error.
func Load(paths []string, opts *ConfigOptions) (*Config, error) {
	var l listing
	for _, path := range paths {
		if err := l.path(path); err != nil {
			return nil, fmt.Errorf("rls: %w", err)
		}
	}
	var files []file
	for _, name := range l.files {
		data, err := regular.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("rls: %w", err)
		}
		files = append(files, file{name, data})
	}
	c, err := parse(files, opts)
	if err != nil {
		return nil, err
	}
	c.skipped = l.skipped
	return c, nil
}

// listing collects what is read, and what is skipped.
type listing struct {
	files   []string
	skipped []Skipped
}

// path lists a file, or the content of a directory.
func (l *listing) path(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		l.files = append(l.files, path)
		return nil
	}
	before := len(l.files)
	if err := l.directory(path); err != nil {
		return err
	}
	if len(l.files) == before {
		return fmt.Errorf("%s: the directory has no files", path)
	}
	return nil
}

// directory lists a directory in the order of names.
func (l *listing) directory(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if strings.HasPrefix(e.Name(), "..") {
			l.skip(path, "the name begins with two dots")
			continue
		}
		if e.IsDir() {
			if err := l.directory(path); err != nil {
				return err
			}
			continue
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			l.skip(path, "it is a dangling link, or was just removed")
		case err != nil:
			return err
		case info.IsDir():
			l.skip(path, "it is a link to a directory")
		case !info.Mode().IsRegular():
			l.skip(path, "it is not a regular file")
		default:
			l.files = append(l.files, path)
		}
	}
	return nil
}

func (l *listing) skip(path, why string) { l.skipped = append(l.skipped, Skipped{path, why}) }
