//go:build unix

package docs_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
)

// built is the folder with the program drawgate.
var built string

// build builds drawgate once.
var build = sync.OnceValue(func() error {
	return needs.Drawgate("..", filepath.Join(built, "drawgate"))
})

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "drawgate")
	if err != nil {
		panic(err)
	}
	built = dir
	code := pgtest.Run(m)
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// TestTutorials does what a reader of each page would do, and compares the results with the page.
//
// A block is
//   - a file, if the sentence before it ends with "Save this as `NAME`:";
//   - a program that goes on running, if that sentence begins with "In a terminal of its own": the
//     lines that the block shows must appear in its output, in this order;
//   - otherwise, in the language console, commands ("$ …") with exactly the output that they print;
//   - in the language text, the next output in the server's terminal;
//   - in the language sh, how to install packages, which "make deps" has installed already;
//   - in the language crontab, a crontab, whose commands are run once, as cron runs them.
//
// Times are not compared, and … on the page matches anything. The test uses free ports. A page that
// names PostgreSQL's port has a server of its own.
func TestTutorials(t *testing.T) {
	t.Parallel()
	paths, err := filepath.Glob("tutorials/*.md")
	if err != nil || len(paths) < 3 {
		t.Fatal(paths, err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			t.Parallel()
			r := newReader(t)
			for _, b := range blocks(r.changed(read(t, path))) {
				r.follow(b)
				if t.Failed() {
					t.Fatalf("at line %d of %s", b.line, path)
				}
			}
		})
	}
}

// block is a block of code on a page.
type block struct {
	line     int // in which it begins
	language string
	text     string
	before   string // the paragraph in front of it
}

func blocks(page string) (all []block) {
	var b *block
	before := ""
	lines := strings.Split(page, "\n")
	for i, line := range lines {
		switch language, fence := strings.CutPrefix(line, "```"); {
		case fence && b == nil:
			b = &block{line: i + 1, language: language, before: before}
		case fence:
			all, b, before = append(all, *b), nil, ""
		case b != nil:
			b.text += line + "\n"
		case line != "":
			before = line
		}
	}
	return all
}

// What the gateway's tutorial shows is in examples/gateway, whose programs gateway/sdktest runs: a
// program of each language, and the configuration.
func TestGatewayTutorialShowsTheExamples(t *testing.T) {
	t.Parallel()
	folders := map[string]string{".yaml": "", ".py": "python/", ".mts": "typescript/", ".go": "go/"}
	missing := maps.Clone(folders)
	for _, b := range blocks(read(t, "tutorials/llm-gateway.md")) {
		m := saved.FindStringSubmatch(b.before)
		if m == nil {
			continue
		}
		kind := filepath.Ext(m[1])
		delete(missing, kind)
		if path := folders[kind] + m[1]; b.text != read(t, "../examples/gateway/"+path) {
			t.Errorf("line %d of the tutorial is not examples/gateway/%s", b.line, path)
		}
	}
	if len(missing) > 0 {
		t.Errorf("the tutorial shows no file of %q", slices.Sorted(maps.Keys(missing)))
	}
}

// reader follows a page.
type reader struct {
	t        *testing.T
	dir      string
	env      []string
	ports    map[string]string // by those that the pages name
	shell    *shell            // nil until it is needed
	server   *terminal         // in which drawgate serve, or drawgate gateway, runs
	postgres *pgtest.Server    // nil if the page needs none
}

func newReader(t *testing.T) *reader {
	t.Helper()
	python, node := needs.Tool(t, "sdk-python/bin"), needs.Tool(t, "node/bin")
	if err := build(); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: t.TempDir(), ports: map[string]string{}}
	for _, port := range []string{"4010", "6379", "7878", "7879", "7880", "7881", "8080", "8081"} {
		_, r.ports[port], _ = net.SplitHostPort(redistest.FreeAddr(t))
	}
	r.env = []string{
		"PATH=" + strings.Join([]string{built, python, node, os.Getenv("PATH")}, ":"),
		"HOME=" + r.dir, "XDG_STATE_HOME=" + r.dir, "XDG_DATA_HOME=" + r.dir,
		"XDG_CONFIG_HOME=" + r.dir,
		"DRAWGATE_LISTEN=127.0.0.1:" + r.ports["7878"], "DRAWGATE_ADMIN_LISTEN=127.0.0.1:" + r.ports["7879"],
		"DRAWGATE_STORE_TIMEOUT=30s", // a busy machine may have a slow disk
		"PYTHONUNBUFFERED=1",
	}
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE", "GOCACHE").Output()
	folders := strings.Fields(string(out))
	if err != nil || len(folders) != 2 {
		t.Fatalf("go env: %q, %v", out, err)
	}
	r.env = append(r.env, "GOMODCACHE="+folders[0], "GOCACHE="+folders[1],
		"GOFLAGS="+os.Getenv("GOFLAGS"), "CGO_ENABLED="+os.Getenv("CGO_ENABLED")) // as all that is compiled already
	return r
}

// changed returns a page with free ports, folders of the test, and windows that do not end while a
// busy machine runs it.
func (r *reader) changed(page string) string {
	list := []string{
		"rolling: 1m", "rolling: 1h", "up_to: 90s", "up_to: 90m", "per rolling 1m", "per rolling 1h",
		"/usr/local/bin", built, "/home/me", r.dir,
		"limiter = Limiter()", `limiter = Limiter("http://127.0.0.1:` + r.ports["7878"] + `")`, // the default
		"limiter = AsyncLimiter(timeout=1)", // no second is enough on a busy machine
		`limiter = AsyncLimiter("http://127.0.0.1:` + r.ports["7878"] + `", timeout=60)`,
	}
	if strings.Contains(page, postgresPort) {
		list = append(list, r.startPostgres()...)
	}
	for from, to := range r.ports {
		list = append(list, from, to)
	}
	if monthEnds("Europe/Berlin") {
		list = append(list, "Europe/Berlin", "Asia/Tokyo")
	}
	return strings.NewReplacer(list...).Replace(page)
}

// How pages name the port of PostgreSQL, the user who sets it up, and how it is restarted.
const (
	postgresPort    = "5432"
	postgresAdmin   = "sudo -u postgres psql"
	postgresRestart = "sudo systemctl restart postgresql"
)

// startPostgres starts a server as the page's reader has one: everybody but the administrator needs
// a password. It returns what to replace on the page.
func (r *reader) startPostgres() (list []string) {
	r.t.Helper()
	psql := needs.Program(r.t, "psql")
	s := pgtest.Start(r.t, "fsync=on", "full_page_writes=on") // else drawgate warns
	s.Do("COPY (VALUES ('host all postgres all trust'), ('host all all all scram-sha-256')) TO '" +
		s.Do("SHOW hba_file") + "'; SELECT pg_reload_conf()")
	r.postgres = s
	host, port, _ := net.SplitHostPort(s.Addr)
	return []string{postgresPort, port, postgresAdmin, psql + " -h " + host + " -p " + port + " -U postgres"}
}

// monthEnds reports whether a month will soon end in that zone.
func monthEnds(zone string) bool {
	loc, err := time.LoadLocation(zone)
	now := time.Now().In(loc)
	return err != nil || now.Month() != now.Add(time.Hour).Month()
}

var saved = regexp.MustCompile("Save this as `([^`]+)`:$")

func (r *reader) follow(b block) {
	r.t.Helper()
	if m := saved.FindStringSubmatch(b.before); m != nil {
		path := filepath.Join(r.dir, filepath.FromSlash(m[1]))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(b.text), 0o600)); err != nil {
			r.t.Fatal(err)
		}
		return
	}
	switch {
	case b.language == "console" && strings.HasPrefix(b.before, "In a terminal of its own"):
		for _, s := range steps(b.text) {
			r.open(s)
		}
	case b.language == "console":
		for _, s := range steps(b.text) {
			r.run(s)
		}
	case b.language == "text":
		r.server.await(strings.Split(strings.TrimSpace(b.text), "\n"))
	case b.language == "crontab":
		r.cron(b.text)
	case b.language == "sh":
		for line := range strings.Lines(b.text) {
			r.install(strings.TrimSpace(line))
		}
	default:
		r.t.Errorf("a block in %q: nobody knows what it is for", b.language)
	}
}

// install does what a command does that installs packages, with those that are here: each has to be
// in the list of what is installed.
func (r *reader) install(command string) {
	r.t.Helper()
	var list, end string
	var err error
	switch words := strings.Fields(command); {
	case strings.HasPrefix(command, "pip install --no-index --find-links dist "):
		source, err := filepath.Abs("../python")
		if err != nil {
			r.t.Fatal(err)
		}
		path := strings.TrimPrefix(r.env[0], "PATH=")
		r.env = append(r.env, "PATH="+needs.Tool(r.t, "python/bin")+":"+path, "PYTHONPATH="+source,
			"PYTHONDONTWRITEBYTECODE=1")
		return
	case words[0] == "pip":
		list, end = "../tools/python/python.txt ../tools/sdk/python.txt", "=="
	case words[0] == "npm":
		list, end = "../tools/sdk/package.json", `": "`
		err = os.Symlink(needs.Tool(r.t, "sdk-node/node_modules"), filepath.Join(r.dir, "node_modules"))
	case words[0] == "go" && words[1] == "get":
		list, end = "../examples/gateway/go.mod", " v"
		for _, name := range []string{"go.mod", "go.sum"} {
			err = errors.Join(err, os.WriteFile(filepath.Join(r.dir, name),
				[]byte(read(r.t, "../examples/gateway/"+name)), 0o600))
		}
		if err == nil { // compiled before a command is waited for: that takes minutes on a busy machine
			var out []byte
			if out, err = r.command("go", append([]string{"build"}, words[2:]...)...).CombinedOutput(); err != nil {
				r.t.Fatalf("%v: %s", err, out)
			}
		}
	case words[0] == "go", words[0] == "python3": // prepare a folder
		return
	default:
		r.t.Errorf("%q: nobody knows what it installs", command)
		return
	}
	if err != nil {
		r.t.Fatal(err)
	}
	known := ""
	for path := range strings.FieldsSeq(list) {
		known += read(r.t, path)
	}
	for _, name := range strings.Fields(command)[2:] {
		name, _, _ = strings.Cut(strings.Trim(name, "'"), "[") // without extras
		if !strings.Contains(known, name+end) {
			r.t.Errorf("%s: %s is not in %s", command, name, list)
		}
	}
}

// step is a command with its output.
type step struct {
	command string
	output  []string
}

func steps(text string) (all []step) {
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			all = append(all, step{command: command})
		} else if n := len(all); n > 0 {
			all[n-1].output = append(all[n-1].output, line)
		}
	}
	return all
}

var (
	instant  = regexp.MustCompile(`20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`)
	duration = regexp.MustCompile(`\bin \d[\d.]*(ms|[dhms])[\d.dhms]*`)
)

// timeless returns a line in which all times are replaced by the same text.
func timeless(line string) string {
	return strings.TrimRight(duration.ReplaceAllString(instant.ReplaceAllString(line, "INSTANT"), "in DURATION"), " ")
}

// shown reports whether a line matches the page.
func shown(page, line string) bool {
	page, line = timeless(page), timeless(line)
	parts := strings.Split(page, "…")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return regexp.MustCompile("^" + strings.Join(parts, ".*") + "$").MatchString(line)
}

// run runs a command in the reader's shell.
func (r *reader) run(s step) {
	r.t.Helper()
	if s.command == postgresRestart {
		r.postgres.Restart()
		return
	}
	if r.shell == nil {
		r.shell = r.newShell()
	}
	got := r.shell.run(s.command)
	ok := len(got) == len(s.output)
	for i := 0; ok && i < len(got); i++ {
		ok = shown(s.output[i], got[i])
	}
	if !ok {
		r.t.Errorf("$ %s\nprints\n%s\nThe page shows\n%s", s.command, strings.Join(got, "\n"),
			strings.Join(s.output, "\n"))
	}
}

// hang is how long to wait for something that must happen.
const hang = 5 * time.Minute

// shell is a shell that remembers variables and exit codes from command to command.
type shell struct {
	t     *testing.T
	in    io.Writer
	lines chan string // of its output; closed at its end
}

// mark is what the shell prints after a command.
const mark = "--- the command has ended ---"

// loop runs commands, each of which is in a file whose name is read from descriptor 3.
const loop = `code=0
while read -r file <&3; do
	command=$(cat "$file")
	(exit $code)
	eval "$command" </dev/null 3<&-
	code=$?
	printf '\n%s\n' '` + mark + `'
done`

func (r *reader) newShell() *shell {
	r.t.Helper()
	in, commands, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	out, output, err := os.Pipe()
	if err != nil {
		r.t.Fatal(err)
	}
	cmd := r.command("sh", "-c", loop)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = []*os.File{in}, output, output
	stop := begin(r.t, cmd)
	_, _ = in.Close(), output.Close() // the shell has its own
	s := &shell{t: r.t, in: commands, lines: make(chan string)}
	ctx := r.t.Context()
	go func() {
		defer close(s.lines)
		for l := bufio.NewScanner(out); l.Scan(); {
			select {
			case s.lines <- l.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	r.t.Cleanup(func() {
		_ = commands.Close() // the shell ends when its input does
		stop()
		_ = out.Close()
	})
	return s
}

// run runs a command and returns what it prints.
func (s *shell) run(command string) (output []string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "command")
	if err := os.WriteFile(file, []byte(command), 0o600); err != nil {
		s.t.Fatal(err)
	}
	fmt.Fprintln(s.in, file)
	timer := time.NewTimer(hang)
	defer timer.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the shell has ended in %s", command)
			}
			if line == mark {
				return output[:len(output)-1] // without the line end in front of the mark
			}
			output = append(output, line)
		case <-timer.C:
			s.t.Fatalf("%s does not end; it printed %q", command, output)
		}
	}
}

// command prepares a program in the reader's folder.
func (r *reader) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// begin starts a program. The returned func ends it, with all processes that it has started.
func begin(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	return func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-done:
		case <-time.After(hang):
		}
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the rest of its process group
		<-done
	}
}

// terminal is a terminal in which a program keeps running.
type terminal struct {
	t       *testing.T
	command string

	mu     sync.Mutex
	output bytes.Buffer // guarded by mu
	next   int          // guarded by mu: where in it what is awaited next begins
}

func (w *terminal) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.output.Write(p)
}

// open starts a program that keeps running, and waits until it has printed what the page shows.
func (r *reader) open(s step) {
	r.t.Helper()
	w := &terminal{t: r.t, command: s.command}
	cmd := r.command("sh", "-c", "exec "+s.command)
	cmd.Stdout, cmd.Stderr = w, w
	r.t.Cleanup(begin(r.t, cmd))
	if strings.HasPrefix(s.command, "drawgate serve") || strings.HasPrefix(s.command, "drawgate gateway") {
		r.server = w
	}
	w.await(s.output)
}

// await waits until these lines have been printed, in this order.
func (w *terminal) await(lines []string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), hang)
	defer cancel()
	for _, line := range lines {
		for !w.found(line) {
			select {
			case <-ctx.Done():
				w.mu.Lock()
				defer w.mu.Unlock()
				w.t.Fatalf("%s does not say\n%s\nIt says\n%s", w.command, line, &w.output)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
}

// found reports whether a line was printed, and continues after it.
func (w *terminal) found(line string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := w.next
	for l := range bytes.Lines(w.output.Bytes()[w.next:]) {
		text, whole := strings.CutSuffix(string(l), "\n")
		if !whole {
			return false
		}
		at += len(l)
		if shown(line, text) {
			w.next = at
			return true
		}
	}
	return false
}

var when = regexp.MustCompile(`^(\S+\s+){5}`)

// cron runs the commands of a crontab once, with the little that cron gives them.
func (r *reader) cron(table string) {
	r.t.Helper()
	env := []string{"HOME=" + r.dir, "SHELL=/bin/sh"}
	commands := 0
	for line := range strings.Lines(table) {
		line = strings.TrimSuffix(line, "\n")
		if !when.MatchString(line) {
			env = append(env, line)
			continue
		}
		cmd := r.command("/bin/sh", "-c", when.ReplaceAllString(line, ""))
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		if err != nil {
			r.t.Errorf("%s: %v\n%s", line, err, out)
		}
		commands++
	}
	if commands == 0 {
		r.t.Error("the crontab has no commands")
	}
}
