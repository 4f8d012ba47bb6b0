//go:build linux && long

package wheel

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
)

// realDist writes what "make release" does for this machine.
func realDist(t *testing.T, folder string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "drawgate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w",
		"-o", program, "./cmd/drawgate")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dist(t, folder, program)
}

// TestFirstDecisionLong follows the page, from the packages to a first decision, without Go and
// without an index.
func TestFirstDecisionLong(t *testing.T) {
	t.Parallel()
	wheels := needs.Tool(t, "python-wheels")
	r := newReader(t, t.TempDir())
	realDist(t, filepath.Join(r.dir, "dist"))
	// The only program on the path is Python: the shell needs no other.
	python, err := exec.CommandContext(t.Context(), "python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nexec " + strings.TrimSpace(string(python)) + ` "$@"` + "\n"
	if err := os.WriteFile(filepath.Join(bin, "python3"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r.env = []string{"PATH=" + bin, "HOME=" + r.dir, "PIP_NO_INDEX=1", "PIP_FIND_LINKS=" + wheels}
	r.install()
	r.decide()
	r.check()
}

// TestEmptyRootLong does the same where there is nothing but Debian and its Python.
func TestEmptyRootLong(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Fatal("an empty root needs root")
	}
	wheels := needs.Tool(t, "python-wheels")
	debootstrap := needs.Program(t, "debootstrap")
	root := filepath.Join(t.TempDir(), "root")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	run(debootstrap, "--variant=minbase", "--include=python3,python3-venv", "bookworm", root)
	realDist(t, filepath.Join(root, "root", "dist"))
	run("cp", "-r", wheels, filepath.Join(root, "root", "wheels"))
	r := newReader(t, "/")
	r.command = func(ctx context.Context, script string) *exec.Cmd {
		return exec.CommandContext(ctx, "chroot", root, "/bin/sh", "-c", "cd /root\n"+script)
	}
	r.env = []string{
		"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin", "HOME=/root", "PIP_NO_INDEX=1", "PIP_FIND_LINKS=/root/wheels",
	}
	r.run("! command -v go")
	r.install()
	r.decide()
	r.check()
}

// block is a block of code: its language, and its text.
type block struct{ language, text string }

var fenced = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// section returns the blocks of a section of docs/python.md.
func section(t *testing.T, heading string) (blocks []block) {
	t.Helper()
	_, text, _ := strings.Cut(string(read(t, "../../docs/python.md")), "\n## "+heading+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	for _, m := range fenced.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, block{m[1], m[2]})
	}
	return blocks
}

// install runs the lines that install both packages.
func (r *reader) install() {
	r.t.Helper()
	r.run("set -e\n" + section(r.t, "Install")[0].text)
}

// decide starts the server, and makes the decisions of the page.
func (r *reader) decide() {
	r.t.Helper()
	blocks := section(r.t, "Install")
	// Nobody else takes ports of this address.
	host := fmt.Sprintf("127.%d.%d.%d", 1+rand.N(250), 1+rand.N(250), 1+rand.N(250))
	r.env = append(r.env, "DRAWGATE_LISTEN="+host+":7878", "DRAWGATE_ADMIN_LISTEN="+host+":7879",
		"DRAWGATE_STORE_TIMEOUT=30s")
	server := r.prepared(r.t.Context(), activate+"exec "+blocks[1].text)
	server.Cancel = func() error { return server.Process.Signal(syscall.SIGTERM) }
	server.WaitDelay = time.Minute
	said, err := server.StderrPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		r.t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			r.t.Errorf("drawgate serve: %v", err)
		}
	}()
	log := ""
	for lines := bufio.NewScanner(said); !strings.Contains(log, "administration at"); log += lines.Text() + "\n" {
		if !lines.Scan() {
			r.t.Fatalf("the server does not start: %s", log)
		}
	}
	r.compare(activate+blocks[2].text, blocks[2].text)
	if blocks[3].language != "python" {
		r.t.Fatalf("the program of the page is %q", blocks[3])
	}
	r.env = append(r.env, "DRAWGATE_SERVER=http://"+host+":7878")
	r.compare(activate+"python - <<'END'\n"+blocks[3].text+"END\n", blocks[3].text)
}

var promised = regexp.MustCompile(`(?m)^ *# (.*)$`)

// compare runs a script, which prints what the comments of its text say.
func (r *reader) compare(script, text string) {
	r.t.Helper()
	got, want := strings.TrimSpace(r.run(script)), promised.FindStringSubmatch(text)
	if want == nil || got != want[1] {
		r.t.Errorf("%s\nprints\n%s\nThe page says %q", script, got, want)
	}
}
