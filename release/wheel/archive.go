package wheel

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"time"
)

// file is a file of an archive.
type file struct {
	name    string
	content []byte
	mode    fs.FileMode
}

// record returns the file RECORD of a wheel with these files.
func record(name string, files []file) file {
	var b bytes.Buffer
	for _, f := range files {
		sum := sha256.Sum256(f.content)
		fmt.Fprintf(&b, "%s,sha256=%s,%d\n", f.name, base64.RawURLEncoding.EncodeToString(sum[:]), len(f.content))
	}
	fmt.Fprintf(&b, "%s,,\n", name)
	return file{name, b.Bytes(), 0o644}
}

// writeZip writes a zip archive whose bytes depend on nothing but its arguments. The sizes are
// in front of each file and not behind it, because some installers read archives from the front.
func writeZip(w io.Writer, files []file, modified time.Time) error {
	archive := zip.NewWriter(w)
	for _, f := range files {
		var packed bytes.Buffer
		c, err := flate.NewWriter(&packed, flate.DefaultCompression)
		if err != nil {
			return err
		}
		if _, err := c.Write(f.content); err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		h := &zip.FileHeader{
			Name: f.name, Method: zip.Deflate, CRC32: crc32.ChecksumIEEE(f.content),
			CompressedSize64: uint64(packed.Len()), UncompressedSize64: uint64(len(f.content)),
		}
		h.SetMode(f.mode)
		h.ModifiedDate, h.ModifiedTime = dosTime(modified.UTC()) //nolint:staticcheck // CreateRaw reads only these
		out, err := archive.CreateRaw(h)
		if err != nil {
			return err
		}
		if _, err := out.Write(packed.Bytes()); err != nil {
			return err
		}
	}
	return archive.Close()
}

// dosTime returns a time as zip archives have it: in steps of two seconds, from 1980 on.
func dosTime(t time.Time) (date, clock uint16) {
	if t.Year() < 1980 {
		t = time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return uint16(t.Day() + int(t.Month())<<5 + (t.Year()-1980)<<9), uint16(t.Second()/2 + t.Minute()<<5 + t.Hour()<<11)
}

// writeTarGz writes a compressed tar archive whose bytes depend on nothing but its arguments.
func writeTarGz(w io.Writer, files []file, modified time.Time) error {
	compressed := gzip.NewWriter(w)
	archive := tar.NewWriter(compressed)
	for _, f := range files {
		h := &tar.Header{
			Name: f.name, Mode: int64(f.mode), Size: int64(len(f.content)), ModTime: modified.Truncate(time.Second),
			Format: tar.FormatPAX,
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if _, err := archive.Write(f.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}
