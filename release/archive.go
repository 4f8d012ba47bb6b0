package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// archives writes an archive for each target: the program with its documents.
func (r *release) archives() error {
	for _, t := range r.targets {
		program, err := os.ReadFile(r.program(t))
		if err != nil {
			return err
		}
		list := []file{
			{filepath.Base(r.program(t)), 0o755, program},
			{"LICENSE", 0o644, r.docs.licence},
			{"NOTICES.txt", 0o644, r.docs.notices},
			{"CHANGELOG.md", 0o644, r.docs.changelog},
		}
		list = append(list, under("completions", r.docs.completions)...)
		list = append(list, r.docs.pages...)
		if t.os != "windows" {
			list = append(list, under("man/man1", r.docs.man)...)
			list = append(list, file{"drawgate.yaml", 0o644, keptFile("drawgate.yaml")})
		}
		if t.os == "linux" {
			list = append(list, file{"drawgate.service", 0o644, keptFile("drawgate.service")})
		}
		name, pack := r.name(t.os+"_"+t.arch), writeTarGz
		end := ".tar.gz"
		if t.os == "windows" {
			pack, end = writeZip, ".zip"
		}
		var packed bytes.Buffer
		if err := pack(&packed, under(name, list), r.time); err != nil {
			return err
		}
		if err := r.put(name+end, packed.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file of the release.
func (r *release) put(name string, data []byte) error {
	path := filepath.Join(r.out, filepath.FromSlash(name))
	return errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, 0o644))
}

func writeTarGz(w io.Writer, list []file, at time.Time) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression) // without a name and a time
	if err != nil {
		return err
	}
	return errors.Join(writeTar(z, list, at), z.Close())
}

// writeTar writes files that belong to root, in the order of their names, with the folders that
// they are in.
func writeTar(w io.Writer, list []file, at time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range withFolders(list) {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: unixMode(f.mode), Size: int64(len(f.data)), ModTime: at,
			Format: tar.FormatUSTAR,
		}
		if f.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, f.name+"/"
		}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		if _, err := t.Write(f.data); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return t.Close()
}

// unixMode returns a mode as tar writes it.
func unixMode(m fs.FileMode) int64 {
	mode := int64(m.Perm())
	if m&fs.ModeSticky != 0 {
		mode |= 0o1000
	}
	return mode
}

func writeZip(w io.Writer, list []file, at time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range withFolders(list) {
		if f.mode.IsDir() {
			continue
		}
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(f.mode)
		part, err := z.CreateHeader(h)
		if err == nil {
			_, err = part.Write(f.data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return z.Close()
}

// withFolders returns files with the folders that they are in and that the list does not have, in
// the order of their names.
func withFolders(list []file) []file {
	have := map[string]bool{}
	for _, f := range list {
		have[f.name] = true
	}
	sorted := slices.Clone(list)
	for _, f := range list {
		for i, c := range f.name {
			if dir := f.name[:i]; c == '/' && !have[dir] {
				have[dir] = true
				sorted = append(sorted, file{name: dir, mode: fs.ModeDir | 0o755})
			}
		}
	}
	slices.SortFunc(sorted, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return sorted
}
