package wheel

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// modified is the time of the files in the tests.
var modified = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// program builds a small program for Linux, which stands for drawgate.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawgate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", path, "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// options returns those of a release into a folder of the test's own.
func options(t *testing.T) *Options {
	t.Helper()
	return &Options{
		Version: "0.1.0", Python: "../../python", Notices: []byte("many licences\n"), Time: modified,
		Out: t.TempDir(),
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	p := program(t)
	o := options(t)
	version := o.Version
	path, err := o.Server(p)
	if err != nil {
		t.Fatal(err)
	}
	const tag = "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64"
	if want := "drawgate_server-" + version + "-py3-none-" + tag + ".whl"; filepath.Base(path) != want {
		t.Errorf("the file is %s, want %s", filepath.Base(path), want)
	}

	archive, err := zip.OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	info := "drawgate_server-" + version + ".dist-info/"
	script := "drawgate_server-" + version + ".data/scripts/drawgate"
	contents := map[string]string{}
	var names []string
	for _, f := range archive.File {
		mode := os.FileMode(0o644)
		if f.Name == script {
			mode = 0o755
		}
		if f.Mode() != mode || !f.Modified.Equal(modified) || f.Flags != 0 || len(f.Extra) > 0 {
			t.Errorf("%s: mode %v, time %v, flags %#x, extra %x", f.Name, f.Mode(), f.Modified, f.Flags, f.Extra)
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, f.Name)
		contents[f.Name] = string(text)
	}
	want := []string{
		"drawgate_server/__init__.py", "drawgate_server/__main__.py", "drawgate_server/py.typed", script,
		info + "licenses/LICENSE", info + "licenses/NOTICES.txt", info + "METADATA", info + "WHEEL", info + "RECORD",
	}
	if !slices.Equal(names, want) {
		t.Errorf("the files are %q, want %q", names, want)
	}
	built, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	if contents[script] != string(built) {
		t.Error("the program in the wheel is another one")
	}
	head := "Metadata-Version: 2.4\nName: drawgate-server\nVersion: " + version +
		"\nLicense-File: LICENSE\nLicense-File: NOTICES.txt\nSummary: "
	if !strings.HasPrefix(contents[info+"METADATA"], head) {
		t.Errorf("METADATA is\n%s", contents[info+"METADATA"])
	}
	if want := "Wheel-Version: 1.0\nGenerator: drawgate\nRoot-Is-Purelib: false\nTag: py3-none-manylinux_2_17_x86_64\n" +
		"Tag: py3-none-manylinux2014_x86_64\nTag: py3-none-musllinux_1_1_x86_64\n"; contents[info+"WHEEL"] != want {
		t.Errorf("WHEEL is\n%s", contents[info+"WHEEL"])
	}
	wantRecord := ""
	for _, name := range names[:len(names)-1] {
		sum := sha256.Sum256([]byte(contents[name]))
		hash := base64.RawURLEncoding.EncodeToString(sum[:])
		wantRecord += fmt.Sprintf("%s,sha256=%s,%d\n", name, hash, len(contents[name]))
	}
	if got := contents[info+"RECORD"]; got != wantRecord+info+"RECORD,,\n" {
		t.Errorf("RECORD is\n%s", got)
	}
}

// The same program makes the same bytes, wherever and whenever.
func TestServerIsReproducible(t *testing.T) {
	t.Parallel()
	p := program(t)
	first, second := options(t), options(t)
	var wheels [][]byte
	for _, o := range []*Options{first, second} {
		path, err := o.Server(p)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		wheels = append(wheels, text)
	}
	if !bytes.Equal(wheels[0], wheels[1]) {
		t.Error("two wheels with the same program differ")
	}
}

func TestServerRefusesOtherFiles(t *testing.T) {
	t.Parallel()
	script := filepath.Join(t.TempDir(), "drawgate")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := options(t)
	if _, err := o.Server(script); err == nil || !strings.Contains(err.Error(), "is not a program that Go built") {
		t.Errorf("%v", err)
	}
	if left, err := os.ReadDir(o.Out); err != nil || len(left) > 0 {
		t.Errorf("files were written: %v, %v", left, err)
	}
}

// Programs get the tags of the machines that they run on.
func TestPlatform(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ os, arch, cgo, want string }{
		{"linux", "arm64", "0", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64 drawgate"},
		{"darwin", "amd64", "0", "macosx_12_0_x86_64 drawgate"},
		{"darwin", "arm64", "0", "macosx_12_0_arm64 drawgate"},
		{"windows", "amd64", "0", "win_amd64 drawgate.exe"},
		{"windows", "arm64", "0", "win_arm64 drawgate.exe"},
		{"linux", "386", "0", "was built for linux/386, which has no wheel"},
		{"linux", "amd64", "1", "may need a C library, which not all machines have: build it with CGO_ENABLED=0"},
	} {
		p, err := platformFor(map[string]string{"GOOS": c.os, "GOARCH": c.arch, "CGO_ENABLED": c.cgo})
		got := strings.Join(p.tags, ".") + " " + p.program
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s/%s, cgo %s: %s, want %s", c.os, c.arch, c.cgo, got, c.want)
		}
	}
}

// The version is in three places, which are changed together.
func TestVersion(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"drawgate/__init__.py", "server/drawgate_server/__init__.py", "pyproject.toml"} {
		o := options(t)
		o.Python = t.TempDir()
		if err := os.CopyFS(o.Python, os.DirFS("../../python")); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Client(); err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(o.Python, path)
		text := bytes.Replace(read(t, path), []byte("=="+o.Version), []byte("==0.2.0"), 1)
		text = bytes.Replace(text, []byte("= \""+o.Version), []byte("= \"0.2.0"), 1)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := o.Client(); err == nil || !strings.Contains(err.Error(), "is not of version "+o.Version) {
			t.Errorf("%s has another version: %v", path, err)
		}
	}
}
