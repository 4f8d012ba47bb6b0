package wheel

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// client writes the client's packages, and returns their bytes.
func client(t *testing.T) (wheel, sdist []byte) {
	t.Helper()
	paths, err := options(t).Client()
	if err != nil {
		t.Fatal(err)
	}
	return read(t, paths[0]), read(t, paths[1])
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestClientIsReproducible(t *testing.T) {
	t.Parallel()
	wheel, sdist := client(t)
	wheelAgain, sdistAgain := client(t)
	if !bytes.Equal(wheel, wheelAgain) || !bytes.Equal(sdist, sdistAgain) {
		t.Error("the client's packages differ from time to time")
	}
}

// The client's packages are those that people get who install it from its source.
func TestClientIsWhatHatchlingBuilds(t *testing.T) {
	t.Parallel()
	python := needs.Tool(t, "python/bin/python")
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), python, "-m", "hatchling", "build", "-d", dir)
	cmd.Dir = "../../python"
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(found) != 2 {
		t.Fatal(found, err)
	}
	wheel, sdist := client(t)
	compare(t, unzip(t, wheel), unzip(t, read(t, found[0])))
	source := untar(t, read(t, found[1]))
	delete(source, "drawgate-"+options(t).Version+"/.gitignore")
	compare(t, untar(t, sdist), source)
}

// compare compares the files of two archives: ours, and hatchling's.
func compare(t *testing.T, ours, theirs map[string]string) {
	t.Helper()
	if a, b := slices.Sorted(maps.Keys(ours)), slices.Sorted(maps.Keys(theirs)); !slices.Equal(a, b) {
		t.Errorf("the files are %q, those of hatchling %q", a, b)
	}
	for name, text := range ours {
		other := theirs[name]
		switch path.Base(name) {
		case "RECORD", "WHEEL": // they say who wrote them
			continue
		case "METADATA", "PKG-INFO":
			text, other = sortedHead(text), sortedHead(other)
		case "entry_points.txt":
			text, other = strings.TrimSpace(text), strings.TrimSpace(other)
		}
		if text != other {
			t.Errorf("%s is\n%s\n\nThat of hatchling is\n%s", name, text, other)
		}
	}
}

// sortedHead returns metadata with its lines sorted, and the parts of each requirement, without the
// version of its format: ours is older, because PyPI knows it.
func sortedHead(text string) string {
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(head, "\n")
	for i, line := range lines {
		if requirement, ok := strings.CutPrefix(line, "Requires-Dist: "); ok {
			requirement, marker, _ := strings.Cut(requirement, ";")
			at := strings.IndexAny(requirement, "<>=!~")
			parts := strings.Split(strings.ReplaceAll(requirement[at:], " ", ""), ",")
			slices.Sort(parts)
			lines[i] = "Requires-Dist: " + requirement[:at] + strings.Join(parts, ",") + ";" + marker
		}
	}
	slices.Sort(lines)
	lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(line, "Metadata-Version:") })
	return strings.Join(lines, "\n") + "\n\n" + body
}

func unzip(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	r, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(text)
	}
	return files
}

func untar(t *testing.T, archive []byte) map[string]string {
	t.Helper()
	plain, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(plain); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

// The text of the licence is in the folder python as well, because a package has no files from
// outside.
func TestLicense(t *testing.T) {
	t.Parallel()
	if !bytes.Equal(read(t, "../../LICENSE"), read(t, "../../python/LICENSE")) {
		t.Error("python/LICENSE is not LICENSE")
	}
}
