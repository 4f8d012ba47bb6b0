//go:build unix

package wheel

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
)

// TestInstall installs the packages in an empty environment, and looks for mistakes in them. A
// small program stands for drawgate: "make long" has the real one.
func TestInstall(t *testing.T) {
	t.Parallel()
	tools := needs.Tool(t, "python/bin")
	wheels := needs.Tool(t, "python-wheels")
	r := newReader(t, t.TempDir())
	dist(t, filepath.Join(r.dir, "dist"), program(t))
	r.env = append(os.Environ(), "PIP_NO_INDEX=1", "PIP_FIND_LINKS=dist "+wheels)
	r.run(tools + "/python -m venv --without-pip .venv")
	r.run(tools + "/pip --python .venv/bin/python install --quiet 'drawgate[server]'")
	r.run(tools + "/pip --python .venv/bin/python check")
	r.check()
	r.run(tools + "/twine check --strict dist/*")
	for packages, options := range map[string]string{
		"drawgate-*.whl":        "--config pyproject.toml",
		"drawgate_server-*.whl": "--no-config",
	} {
		r.run("cd " + r.python + "; " + tools + "/check-wheel-contents " + options + " " + r.dir + "/dist/" + packages)
	}

	// On Alpine there is no glibc.
	r.run(tools + "/pip download --quiet --no-deps --only-binary :all: --platform musllinux_1_1_x86_64 --dest musl drawgate-server")

	// As for a folder of a function in the cloud, which is no environment.
	r.run(tools + "/pip install --quiet --no-deps --target folder drawgate-server")
	r.run(`test "$(PYTHONPATH=folder ` + tools + `/python -m drawgate_server works)" = works`)
	r.run("rm folder/bin/drawgate; ! PYTHONPATH=folder " + tools + "/python -m drawgate_server works 2>errors; " +
		"grep 'the program drawgate is missing: install drawgate-server again' errors")
}

// dist writes what "make release" does of a program: the wheel with it, and the packages of the
// client.
func dist(t *testing.T, folder, program string) {
	t.Helper()
	o := options(t)
	o.Out = folder
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Server(program); err != nil {
		t.Fatal(err)
	}
	if _, err := o.Client(); err != nil {
		t.Fatal(err)
	}
}

// reader is somebody who installs the packages, by commands of a shell.
type reader struct {
	t       *testing.T
	python  string // the folder python of the repository
	dir     string // in which dist is
	env     []string
	command func(ctx context.Context, script string) *exec.Cmd
}

func newReader(t *testing.T, dir string) *reader {
	t.Helper()
	python, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	return &reader{t: t, python: python, dir: dir, command: func(ctx context.Context, script string) *exec.Cmd {
		return exec.CommandContext(ctx, "/bin/sh", "-c", script)
	}}
}

// run runs a script, and returns what it prints.
func (r *reader) run(script string) string {
	r.t.Helper()
	cmd := r.prepared(r.t.Context(), script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s\n%v\n%s", script, err, out)
	}
	return string(out)
}

// prepared returns a script that can be started.
func (r *reader) prepared(ctx context.Context, script string) *exec.Cmd {
	cmd := r.command(ctx, script)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

const activate = ". .venv/bin/activate\n"

// check looks at what was installed.
func (r *reader) check() {
	r.t.Helper()
	r.run(activate + `python - <<'END'
import drawgate, drawgate_server, pathlib, subprocess, sys
assert drawgate.__version__ == drawgate_server.__version__
path = drawgate_server.path()
assert path == pathlib.Path(sys.prefix, "bin", "drawgate"), path
assert path.stat().st_mode & 0o777 == 0o755, path.stat()
said = {subprocess.run([*command, "version"], check=True, capture_output=True, text=True).stdout
    for command in (["drawgate"], [path], [sys.executable, "-m", "drawgate_server"])}
(text,) = said
assert text == "version\n" or text.startswith("drawgate "), text
END
`)
}
