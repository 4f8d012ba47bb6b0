//go:build long

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The release command, run on two clones in different folders, the second time with nothing of Go's
// cache, makes the same bytes.
func TestReleasedTwiceIsTheSame(t *testing.T) {
	var made [2]map[string]string
	for i, folder := range []string{"a", "another/folder"} {
		root := filepath.Join(t.TempDir(), folder)
		if out, err := exec.Command("git", "clone", "--quiet", "..", root).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		cmd := exec.Command("make", "-C", root, "release", "DOWNLOAD=http://127.0.0.1/files")
		if i > 0 {
			cmd.Env = append(os.Environ(), "GOCACHE="+filepath.Join(t.TempDir(), "cache"), "GOMODCACHE="+goModCache(t),
				"TZ=Asia/Tokyo", "HOME="+t.TempDir())
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		made[i] = tree(t, filepath.Join(root, "dist"))
	}
	if len(made[0]) < 30 || len(made[0]) != len(made[1]) {
		t.Errorf("%d and %d files", len(made[0]), len(made[1]))
	}
	for name, data := range made[0] {
		if data != made[1][name] {
			t.Errorf("%s is not the same", name)
		}
	}
	t.Logf("%d files are the same:\n%s", len(made[0]), made[0]["SHA256SUMS"])
}

func goModCache(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out[:len(out)-1])
}
