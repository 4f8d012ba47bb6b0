package sqlitestore_test

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/internal/recorded"
)

var update = flag.Bool("update", false, "write the file of this version to testdata/records")

// TestFilesOfEarlierVersions reads what they wrote. TestFileOfVersion1 does so with an older
// schema.
//
// req: D6
func TestFilesOfEarlierVersions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/records/*.db.gz")
	if err != nil || len(files) == 0 && !*update {
		t.Fatal(files, err)
	}
	c := newClock()
	filled := func() string {
		t.Helper()
		path := dbPath(t)
		c.us.Store(recorded.Start().UnixMicro())
		s := openAt(t, path, nil, c)
		recorded.Fill(t, s, c.advance)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if *update {
		var packed bytes.Buffer
		z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := z.Write(content(t, filled())); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("testdata/records/0.1.db.gz", packed.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		fresh := filled()
		recorded.Compare(t, openAt(t, unpacked(t, file), nil, c), openAt(t, fresh, nil, c), c.advance)
	}
}
