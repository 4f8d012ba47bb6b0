//go:build unix

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// TestBackupIsOfTheDatabase runs the page's commands for a backup: the backup has what the database
// has, and nobody else can read it. Without the database they fail, and make none.
func TestBackupIsOfTheDatabase(t *testing.T) {
	t.Parallel()
	needs.Program(t, "sqlite3")
	if err := build(); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(built, "drawgate")
	var script string
	for _, b := range blocks(read(t, "operations.md")) {
		if strings.Contains(b.text, ".backup") {
			script += b.text
		}
	}
	dir := t.TempDir()
	state, backup := filepath.Join(dir, "state"), filepath.Join(dir, "backup")
	script = strings.NewReplacer("/var/lib/drawgate/", state+"/", "'/backup/", "'"+backup+"/").Replace(script)
	if strings.Count(script, state) != 1 || strings.Count(script, backup) != 1 {
		t.Fatalf("the page's commands are not those that this test knows:\n%s", script)
	}
	for _, d := range []string{state, backup} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "RATE_LIMIT_PER_DAY=5"}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := run("sh", "-ec", script)
	made, _ := filepath.Glob(state + "/*")
	if err == nil || len(made) > 0 {
		t.Errorf("without the database: %v, made %q\n%s", err, made, out)
	}
	// The file's name is that of the packages.
	packaged := read(t, "../release/files/drawgate.yaml")
	if !strings.Contains(packaged, "store: sqlite:///var/lib/drawgate/drawgate.db") {
		t.Errorf("the packages' database is another one:\n%s", packaged)
	}
	db, copied := filepath.Join(state, "drawgate.db"), filepath.Join(backup, "drawgate.db")
	for _, c := range [][]string{
		{program, "take", "-n", "3", "--store", "sqlite:" + db},
		{"sh", "-ec", script},
	} {
		if out, err := run(c[0], c[1:]...); err != nil {
			t.Fatalf("%q: %v\n%s", c, err, out)
		}
	}
	out, err = run(program, "status", "--json", "--store", "sqlite:"+copied)
	if err != nil || !strings.Contains(out, `"used":3`) {
		t.Errorf("the backup: %v\n%s", err, out)
	}
	if st, err := os.Stat(copied); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the backup's mode: %v, %v", st.Mode(), err)
	}
}
