package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// scratch is a folder for what the tests share.
var scratch string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "drawgate-release")
	if err != nil {
		panic(err)
	}
	scratch = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// pretended is a release that all tests read.
var pretended = sync.OnceValues(func() (*release, error) {
	return pretend(filepath.Join(scratch, "pretended"))
})

func once(t *testing.T) *release {
	t.Helper()
	r, err := pretended()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// pretend makes a release whose programs are a few words, so that packing them takes no time.
func pretend(out string) (*release, error) {
	r := &release{
		out: out, targets: all, version: nextVersion, commit: strings.Repeat("c0ffee", 7)[:40],
		time: time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC), download: "http://127.0.0.1/files",
		docs: &docs{
			man: []file{
				{"drawgate.1", 0o644, []byte(".TH DRAWGATE 1\n")},
				{"drawgate-take.1", 0o644, []byte(".TH DRAWGATE-TAKE 1\n")},
			},
			completions: []file{
				{"drawgate.bash", 0o644, []byte("bash\n")},
				{"drawgate.zsh", 0o644, []byte("zsh\n")},
				{"drawgate.fish", 0o644, []byte("fish\n")},
				{"drawgate.ps1", 0o644, []byte("powershell\n")},
			},
			licence: []byte("the licence\n"), notices: []byte("the notices\n"), changelog: []byte("# Changelog\n"),
		},
	}
	var err error
	if r.docs.pages, err = pages(os.DirFS("..")); err != nil {
		return nil, err
	}
	everywhere := map[target]bool{}
	for _, target := range all {
		everywhere[target] = true
		if err := put(r.program(target), []byte("the program for "+target.String()), 0o755); err != nil {
			return nil, err
		}
	}
	r.modules = []*module{
		{path: "example.org/Mixed", version: "v1.2.3", sum: "h1:abc=", licences: []string{"MIT"}, targets: everywhere},
		{
			path: "example.org/windows", version: "v0.1.0+incompatible", licences: []string{"ISC"},
			targets: map[target]bool{{"windows", "amd64"}: true},
		},
		{path: goLibrary, version: "1.26.8", licences: []string{"BSD-3-Clause"}, targets: everywhere},
	}
	return r, errors.Join(r.put(r.name("NOTICES.txt"), r.docs.notices), r.pack())
}

// tree returns the files below a folder, by their names.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	list := map[string]string{}
	root := os.DirFS(dir)
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, name)
		list[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// The same programs are packed into the same bytes. That the programs are the same too is tested by
// "make long", which compiles all of them twice.
func TestPackedTwiceIsTheSame(t *testing.T) {
	t.Parallel()
	again, err := pretend(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	first, second := tree(t, once(t).out), tree(t, again.out)
	if len(first) < 30 || len(first) != len(second) {
		t.Fatalf("%d and %d files", len(first), len(second))
	}
	for name, data := range first {
		if data != second[name] {
			t.Errorf("%s is not the same", name)
		}
	}
}

func TestChecksumsAreOfAllFiles(t *testing.T) {
	t.Parallel()
	r := once(t)
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range tree(t, r.out) {
		listed := strings.Contains(string(sums), hex.EncodeToString(digest([]byte(data)))+"  "+name+"\n")
		if want := !strings.Contains(name, "/") && name != "SHA256SUMS"; listed != want {
			t.Errorf("%s is listed: %t, want %t", name, listed, want)
		}
	}
}

// contents returns what is in an archive: names, with their modes.
func contents(t *testing.T, name string, data []byte) (list []string) {
	t.Helper()
	if strings.HasSuffix(name, ".zip") {
		z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range z.File {
			list = append(list, f.Name+" "+f.Mode().String())
		}
		return list
	}
	var r io.Reader = bytes.NewReader(data)
	if strings.HasSuffix(name, ".gz") {
		z, err := gzip.NewReader(r)
		if err != nil {
			t.Fatal(err)
		}
		r = z
	}
	a := tar.NewReader(r)
	for {
		h, err := a.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname+h.Gname != "" {
			t.Errorf("%s: %s belongs to %d:%d %s:%s", name, h.Name, h.Uid, h.Gid, h.Uname, h.Gname)
		}
		list = append(list, h.Name+" "+h.FileInfo().Mode().String())
	}
}

func TestArchives(t *testing.T) {
	t.Parallel()
	r := once(t)
	for _, target := range all {
		folder := r.name(target.os + "_" + target.arch)
		name, program := folder+".tar.gz", "drawgate"
		if target.os == "windows" {
			name, program = folder+".zip", "drawgate.exe"
		}
		data, err := os.ReadFile(filepath.Join(r.out, name))
		if err != nil {
			t.Fatal(err)
		}
		have := contents(t, name, data)
		want := []string{
			program + " -rwxr-xr-x", "LICENSE -rw-r--r--", "NOTICES.txt -rw-r--r--",
			"completions/drawgate.zsh -rw-r--r--", "completions/drawgate.ps1 -rw-r--r--",
			"docs/forward-auth.md -rw-r--r--", "deploy/nginx/nginx.conf -rw-r--r--",
		}
		if target.os != "windows" {
			want = append(want, "man/man1/drawgate-take.1 -rw-r--r--", "drawgate.yaml -rw-r--r--")
		}
		if target.os == "linux" {
			want = append(want, "drawgate.service -rw-r--r--")
		}
		for _, w := range want {
			if !slices.Contains(have, path.Join(folder, w)) {
				t.Errorf("%s has no %s: %q", name, w, have)
			}
		}
	}
}

// The image is a layout whose parts are those that it names, and it starts as documented.
func TestImage(t *testing.T) {
	t.Parallel()
	r := once(t)
	blobs := tree(t, filepath.Join(r.out, "image", "blobs", "sha256"))
	for name, data := range blobs {
		if name != hex.EncodeToString(digest([]byte(data))) {
			t.Errorf("blob %s has another hash", name)
		}
	}
	follow := func(d descriptor, to any) {
		t.Helper()
		data := blobs[strings.TrimPrefix(d.Digest, "sha256:")]
		if d.Size != len(data) {
			t.Errorf("%s: size %d, want %d", d.Digest, d.Size, len(data))
		}
		if err := json.Unmarshal([]byte(data), to); err != nil {
			t.Fatal(err)
		}
	}
	var top, index manifest
	text, err := os.ReadFile(filepath.Join(r.out, "image", "index.json"))
	if err := errors.Join(err, json.Unmarshal(text, &top)); err != nil {
		t.Fatal(err)
	}
	follow(top.Manifests[0], &index)
	if len(index.Manifests) != 2 {
		t.Fatalf("%d architectures, want 2", len(index.Manifests))
	}
	for _, d := range index.Manifests {
		var m manifest
		var c imageConfig
		follow(d, &m)
		follow(*m.Config, &c)
		if c.Architecture != d.Platform.Architecture || c.OS != "linux" || c.Config.User != imageUser {
			t.Errorf("%+v", c)
		}
		layer := blobs[strings.TrimPrefix(m.Layers[0].Digest, "sha256:")]
		want := []string{
			"etc/ drwxr-xr-x", "etc/drawgate/ drwxr-xr-x", "etc/ssl/ drwxr-xr-x", "etc/ssl/certs/ drwxr-xr-x",
			"etc/ssl/certs/ca-certificates.crt -rw-r--r--", "usr/ drwxr-xr-x", "usr/bin/ drwxr-xr-x",
			"usr/bin/drawgate -rwxr-xr-x", "usr/share/ drwxr-xr-x", "usr/share/doc/ drwxr-xr-x",
			"usr/share/doc/drawgate/ drwxr-xr-x", "usr/share/doc/drawgate/LICENSE -rw-r--r--",
			"usr/share/doc/drawgate/NOTICES.txt -rw-r--r--", "var/ drwxr-xr-x", "var/lib/ drwxr-xr-x",
			"var/lib/drawgate/ dtrwxrwxrwx",
		}
		if have := contents(t, "layer.gz", []byte(layer)); !slices.Equal(have, want) {
			t.Errorf("the layer has\n%q\nwant\n%q", have, want)
		}
	}
}

// Each program's list names its own modules.
func TestBillsOfMaterials(t *testing.T) {
	t.Parallel()
	r := once(t)
	for _, target := range all {
		var b bom
		text, err := os.ReadFile(filepath.Join(r.out, r.name(target.os+"_"+target.arch)+".cdx.json"))
		if err := errors.Join(err, json.Unmarshal(text, &b)); err != nil {
			t.Fatal(err)
		}
		want := []string{"pkg:golang/example.org/mixed@v1.2.3", "pkg:golang/std@1.26.8"}
		if target.String() == "windows/amd64" {
			want = slices.Insert(want, 1, "pkg:golang/example.org/windows@v0.1.0%2Bincompatible")
		}
		if have := b.Dependencies[0].DependsOn; !slices.Equal(have, want) || len(b.Components) != len(want) {
			t.Errorf("%s: %q, want %q", target, have, want)
		}
	}
}

// The page on installing names the files as they are made: those of Python are made elsewhere.
func TestPageNamesTheFiles(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	r := once(t)
	made := tree(t, r.out)
	kind := regexp.MustCompile(`(linux|darwin|windows)_(amd64|arm64)`) // of six of which the page names one
	named := map[string]bool{}
	for _, name := range regexp.MustCompile(`drawgate[-_]`+regexp.QuoteMeta(nextVersion)+`[-_][\w.-]*\.(deb|rpm|tar\.gz|tar|json|txt)`).
		FindAllString(string(page), -1) {
		if made[name] == "" {
			t.Errorf("the page names %s, which is not made", name)
		}
		named[kind.ReplaceAllString(strings.Replace(name, ".zip", ".tar.gz", 1), "PLATFORM")] = true
	}
	for name := range made {
		short := kind.ReplaceAllString(strings.Replace(name, ".zip", ".tar.gz", 1), "PLATFORM")
		if !strings.Contains(name, "/") && name != "SHA256SUMS" && name != "drawgate.rb" && !named[short] {
			t.Errorf("the page does not name %s", name)
		}
	}
}

// A folder that is a file system of its own cannot be removed. The purge of the package removes the
// rest all the same. In place of rm there is one that removes nothing.
func TestPurgeGoesOn(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	dir := t.TempDir()
	script := "#!/bin/sh\necho \"$@\" >>\"$REMOVED\"\ncase \"$*\" in *'/var/lib/'*) exit 1 ;; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "rm"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	removed := filepath.Join(dir, "removed")
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "files/deb/postrm", "purge")
	cmd.Env = []string{"PATH=" + dir, "REMOVED=" + removed}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	if text, err := os.ReadFile(removed); err != nil || !strings.Contains(string(text), "/etc/drawgate/secrets.env") ||
		!strings.Contains(string(text), "/var/lib/drawgate") {
		t.Errorf("removed: %s, %v", text, err)
	}
}

// An upgrade does not restart a service whose configuration the new version refuses, and says what
// is wrong. In place of systemd's commands there are some that only tell what they were asked.
func TestUpgradeWithMistake(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("needs a shell")
	}
	for _, name := range []string{"deb/postinst", "rpm/postun"} {
		for status, restarts := range map[string]bool{"78": false, "0": true, "1": true} { // 1: it could not be checked
			dir := t.TempDir()
			for tool, script := range map[string]string{
				"getent": "", "deb-systemd-helper": "", "install": "",
				"deb-systemd-invoke": `echo "did $1"`, "systemctl": `echo "did $1"`,
				"systemd-run": "echo line 3: no such key; exit " + status,
			} {
				err := os.WriteFile(filepath.Join(dir, tool), []byte("#!/bin/sh\n"+script+"\n"), 0o700) //nolint:gosec // it is run
				if err != nil {
					t.Fatal(err)
				}
			}
			// The lines do not show what restarts print, so the tools write where it can be seen.
			text := strings.ReplaceAll(string(keptFile(name)), "/run/systemd/system", dir)
			text = regexp.MustCompile(`(restart drawgate.service) >/dev/null( 2>&1)?`).ReplaceAllString(text, "$1")
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", text, name, map[string]string{
				"deb/postinst": "configure", "rpm/postun": "1",
			}[name], "0.0.9")
			cmd.Env = []string{"PATH=" + dir}
			out, err := cmd.CombinedOutput()
			text = string(out)
			restarted := strings.Contains(text, "did restart") || strings.Contains(text, "did try-restart")
			warned := strings.Contains(text, "no such key") && strings.Contains(text, "NOT restarted")
			if err != nil || restarted != restarts || warned == restarts {
				t.Errorf("%s, status %s of the check: %v\n%s", name, status, err, out)
			}
		}
	}
}

// Packages have the pages that the sample file and the files of init name, and examples for
// proxies, to which the pages' links lead.
func TestPackedPages(t *testing.T) {
	t.Parallel()
	r := once(t)
	for _, f := range formats {
		list, err := r.packed(target{"linux", "amd64"}, f.name)
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]string{}
		for _, f := range list {
			have[strings.TrimPrefix(f.name, "usr/share/doc/drawgate/")] = string(f.data)
		}
		for _, want := range []string{
			"docs/configuration.md", "docs/forward-auth.md", "docs/tutorials/python.md", "deploy/nginx/nginx.conf",
			"deploy/caddy/Caddyfile", "deploy/haproxy/drawgate.lua", "deploy/traefik/dynamic.yaml",
			"deploy/envoy/envoy.yaml", "deploy/grafana/drawgate-limits.json", "deploy/compose/compose.yaml",
			"deploy/prometheus/drawgate-alerts.yaml", "deploy/helm/drawgate/Chart.yaml",
		} {
			if have[want] == "" {
				t.Errorf("%s has no %s", f.name, want)
			}
		}
		for name, text := range have {
			if strings.HasPrefix(name, "docs/results") || slices.Contains([]string{".go", ".png"}, path.Ext(name)) {
				t.Errorf("%s has %s", f.name, name)
			}
			if !strings.HasPrefix(name, "docs/") {
				continue
			}
			for _, link := range regexp.MustCompile(`\]\(([./]*/deploy/[^)#]+)`).FindAllStringSubmatch(text, -1) {
				at, inside := path.Join(path.Dir(name), link[1]), false
				for other := range have {
					inside = inside || other == at || strings.HasPrefix(other, at+"/")
				}
				if !inside {
					t.Errorf("%s: %s links to %s, which is not there", f.name, name, at)
				}
			}
		}
	}
}
