package config_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/config"
)

// fileOf is a configuration with one policy of this amount.
func fileOf(amount int) string {
	return fmt.Sprintf("policies:\n  a:\n    limits:\n      - {name: a, rolling: 1m, amount: %d}\n", amount)
}

func amountOf(c *config.Config) int64 { return c.Policies[0].Limits[0].Amount }

// watching is a watcher under test. Its callbacks send to one of the channels.
type watching struct {
	*config.Watcher

	t       *testing.T
	applied chan *config.Config
	failed  chan error
	refuse  error // what apply returns
}

// quiet is short to keep the tests short. Waits for a call are long.
const quiet = 20 * time.Millisecond

func watch(t *testing.T, environ []string, flags config.Flags, poll time.Duration) *watching {
	t.Helper()
	c, err := config.Resolve(environ, flags)
	if err != nil {
		t.Fatal(err)
	}
	return watchConfig(t, c, poll)
}

func watchConfig(t *testing.T, c *config.Config, poll time.Duration) *watching {
	t.Helper()
	return watchQuiet(t, c, quiet, poll)
}

func watchQuiet(t *testing.T, c *config.Config, quiet, poll time.Duration) *watching {
	t.Helper()
	w := &watching{t: t, applied: make(chan *config.Config, 1000), failed: make(chan error, 1000)}
	w.Watcher = config.Watch(t.Context(), c, func(c *config.Config) error {
		w.applied <- c
		return w.refuse
	}, &config.WatchOptions{Debounce: quiet, Poll: poll, Failed: func(err error) { w.failed <- err }})
	t.Cleanup(w.Close)
	return w
}

const patience = time.Minute

// until waits for a configuration with this amount, and ignores earlier ones.
func (w *watching) until(amount int64) {
	w.t.Helper()
	end := time.After(patience)
	for {
		select {
		case c := <-w.applied:
			if amountOf(c) == amount {
				return
			}
		case <-end:
			w.t.Fatalf("no configuration with amount %d came", amount)
		}
	}
}

// next waits for the next configuration.
func (w *watching) next() *config.Config {
	w.t.Helper()
	select {
	case c := <-w.applied:
		return c
	case <-time.After(patience):
		w.t.Fatal("no configuration came")
	}
	return nil
}

// fails waits for the report of a change that is not in force.
func (w *watching) fails() error {
	w.t.Helper()
	select {
	case err := <-w.failed:
		return err
	case c := <-w.applied:
		w.t.Fatalf("applied %s", c)
	case <-time.After(patience):
		w.t.Fatal("nobody was told")
	}
	return nil
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// replace replaces a file in one step, so that no reader sees it empty, even on a busy machine.
func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	must(t, os.Rename(path+".new", path))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newFile returns the path of a file with amount 1.
func newFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	write(t, path, fileOf(1))
	return path
}

const noPoll = -1

// Kubernetes mounts a directory of links: the file to ..data/file, ..data to a directory with a
// time stamp. An update makes another directory and swaps ..data by a rename; then the old one is
// removed.
func TestWatchSurvivesKubernetesSymlinkSwap(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := func(n int) string { return fmt.Sprintf("..2026_11_21_%d", n) }
	fill := func(n int) {
		must(t, os.Mkdir(filepath.Join(dir, version(n)), 0o700))
		write(t, filepath.Join(dir, version(n), "drawgate.yaml"), fileOf(n))
	}
	fill(1)
	must(t, os.Symlink(version(1), filepath.Join(dir, "..data")))
	must(t, os.Symlink(filepath.Join("..data", "drawgate.yaml"), filepath.Join(dir, "drawgate.yaml")))
	w := watch(t, nil, config.Flags{Config: filepath.Join(dir, "drawgate.yaml")}, noPoll)
	for n := 2; n < 7; n++ {
		fill(n)
		must(t, os.Symlink(version(n), filepath.Join(dir, "..data_tmp")))
		must(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
		must(t, os.RemoveAll(filepath.Join(dir, version(n-1))))
		w.until(int64(n))
	}
	if len(w.failed) > 0 {
		t.Errorf("a swap was told as a failure: %v", <-w.failed)
	}
}

// A change is seen however an editor or a program writes the file.
func TestWatchSeesEveryWayToWrite(t *testing.T) {
	t.Parallel()
	for name, save := range map[string]func(t *testing.T, path, text string){
		"in place":       write,
		"rename over it": replace,
		"backup, then anew": func(t *testing.T, path, text string) {
			t.Helper()
			must(t, os.Rename(path, path+"~"))
			write(t, path, text)
		},
		"remove, then anew": func(t *testing.T, path, text string) {
			t.Helper()
			must(t, os.Remove(path))
			write(t, path, text)
		},
		"in two halves": func(t *testing.T, path, text string) {
			t.Helper()
			f, err := os.Create(path)
			must(t, err)
			_, err = f.WriteString(text[:len(text)-4])
			must(t, err)
			must(t, f.Sync())
			_, err = f.WriteString(text[len(text)-4:])
			must(t, err)
			must(t, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t)
			w := watch(t, nil, config.Flags{Config: path}, noPoll)
			for n := 2; n < 6; n++ {
				save(t, path, fileOf(n))
				w.until(int64(n))
			}
		})
	}
}

// After many writes in a row the last one is in force, and only few of them are read.
func TestWatchEndsWithTheLastOfManyWrites(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	const last = 500
	for n := 2; n <= last; n++ {
		write(t, path, fileOf(n))
	}
	w.until(last)
	must(t, w.Reload(t.Context()))
	if c := w.next(); amountOf(c) != last || len(w.applied) > 0 {
		t.Errorf("amount %d is in force, and %d calls followed", amountOf(c), len(w.applied))
	}
}

// A broken file changes nothing and is reported once. The next good file is in force, even if it is
// the same as before.
func TestWatchKeepsTheOldOneWhileTheFileIsBroken(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	replace(t, path, strings.Replace(fileOf(2), "amount", "amout", 1))
	err := w.fails()
	problems, ok := errors.AsType[config.Problems](err)
	if !ok || !strings.Contains(problems[0].Message, `unknown key "amout"`) || problems[0].Line != 4 {
		t.Errorf("told %v", err)
	}
	replace(t, path, fileOf(1))
	w.until(1)
	replace(t, path, fileOf(3))
	w.until(3)
	if len(w.failed) > 0 {
		t.Errorf("told again: %v", <-w.failed)
	}
}

func TestWatchSurvivesRemovalAndReturn(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	for n := 2; n < 5; n++ {
		must(t, os.Remove(path))
		if err := w.fails(); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("told %v, want that the file is missing", err)
		}
		replace(t, path, fileOf(n))
		w.until(int64(n))
	}
}

// The directory may be removed as well, and any part of the path may be a link that changes.
func TestWatchFollowsThePath(t *testing.T) {
	t.Parallel()
	t.Run("directory removed and made again", func(t *testing.T) {
		t.Parallel()
		dir := filepath.Join(t.TempDir(), "etc", "drawgate")
		must(t, os.MkdirAll(dir, 0o700))
		path := filepath.Join(dir, "drawgate.yaml")
		write(t, path, fileOf(1))
		w := watch(t, nil, config.Flags{Config: path}, noPoll)
		for n := 2; n < 5; n++ {
			must(t, os.RemoveAll(filepath.Dir(dir)))
			_ = w.fails()
			must(t, os.MkdirAll(dir, 0o700))
			write(t, path, fileOf(n))
			w.until(int64(n))
			write(t, path, fileOf(n*10))
			w.until(int64(n * 10))
		}
	})
	t.Run("directory swapped by renames", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		dir := filepath.Join(root, "conf")
		must(t, os.Mkdir(dir, 0o700))
		write(t, filepath.Join(dir, "a.yaml"), fileOf(1))
		w := watch(t, nil, config.Flags{Config: filepath.Join(dir, "a.yaml")}, noPoll)
		for n := 2; n < 5; n++ {
			next := filepath.Join(root, fmt.Sprint("next", n))
			must(t, os.Mkdir(next, 0o700))
			write(t, filepath.Join(next, "a.yaml"), fileOf(n))
			must(t, os.Rename(dir, filepath.Join(root, fmt.Sprint("old", n))))
			must(t, os.Rename(next, dir))
			w.until(int64(n))
			write(t, filepath.Join(dir, "a.yaml"), fileOf(n*10))
			w.until(int64(n * 10))
		}
	})
	t.Run("link to a release", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		release := func(n int) {
			dir := filepath.Join(root, "releases", fmt.Sprint(n))
			must(t, os.MkdirAll(dir, 0o700))
			write(t, filepath.Join(dir, "a.yaml"), fileOf(n))
			must(t, os.Symlink(filepath.Join("releases", fmt.Sprint(n)), filepath.Join(root, "next")))
			must(t, os.Rename(filepath.Join(root, "next"), filepath.Join(root, "current")))
		}
		release(1)
		w := watch(t, nil, config.Flags{Config: filepath.Join(root, "current", "a.yaml")}, noPoll)
		for n := 2; n < 5; n++ {
			release(n)
			w.until(int64(n))
			write(t, filepath.Join(root, "releases", fmt.Sprint(n), "a.yaml"), fileOf(n*10))
			w.until(int64(n * 10))
		}
	})
	t.Run("an ancestor that nobody notices", func(t *testing.T) {
		t.Parallel()
		root := t.TempDir()
		path := filepath.Join(root, "a", "b", "c.yaml")
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		write(t, path, fileOf(1))
		w := watch(t, nil, config.Flags{Config: path}, quiet) // compared now and then
		must(t, os.MkdirAll(filepath.Join(root, "x", "b"), 0o700))
		write(t, filepath.Join(root, "x", "b", "c.yaml"), fileOf(2))
		must(t, os.Rename(filepath.Join(root, "a"), filepath.Join(root, "z")))
		must(t, os.Rename(filepath.Join(root, "x"), filepath.Join(root, "a")))
		w.until(2)
	})
}

// A change that does not alter the content causes no call.
func TestWatchIgnoresWhatChangesNothing(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c, err := config.Resolve(nil, config.Flags{Config: path})
	must(t, err)
	w := watchQuiet(t, c, time.Second, noPoll) // for longer than a busy machine leaves the file renamed
	for range 5 {
		replace(t, path, fileOf(1))
		must(t, os.Chtimes(path, time.Now(), time.Now()))
		must(t, os.Chmod(path, 0o640))
		write(t, path+".log", "something else")
		must(t, os.Rename(path, path+".b"))
		must(t, os.Rename(path+".b", path))
	}
	replace(t, path, fileOf(2))
	if c := w.next(); amountOf(c) != 2 {
		t.Errorf("applied amount %d without a change", amountOf(c))
	}
	if len(w.failed) > 0 {
		t.Errorf("told %v", <-w.failed)
	}
}

// A change between reading and watching a file is seen.
func TestWatchSeesWhatChangedBefore(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c, err := config.Resolve(nil, config.Flags{Config: path})
	must(t, err)
	write(t, path, fileOf(2))
	watchConfig(t, c, noPoll).until(2)
}

// Flags and environment are applied again each time; the rules' file, secrets and Envoy's files are
// watched too.
//
// req: E3
func TestWatchReadsAllFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	rule := func(n int) string {
		return fmt.Sprintf("rules: [{name: r%d, apply: [{policy: a, key: ip, limits: {a: %d}}]}]", n, n)
	}
	must(t, os.Mkdir(at("envoy"), 0o700))
	write(t, at("envoy/one.yaml"), "domain: a")
	write(t, at("token"), "0123456789abcdef\n")
	write(t, at("rules.yaml"), rule(1))
	write(t, at("drawgate.yaml"),
		fileOf(1)+fmt.Sprintf("envoy: {configs: %q}\nserver: {grpc: \"127.0.0.1:0\", tokens: [{role: take, token_file: %q}]}\n", at("envoy"), at("token")))
	w := watch(t, []string{"RATE_LIMIT_RULES_PATH=" + at("rules.yaml"), "RATE_LIMIT_PER_DAY=7"},
		config.Flags{Config: at("drawgate.yaml"), Store: "memory:"}, noPoll)
	next := func(change func()) *config.Config {
		t.Helper()
		change()
		select {
		case c := <-w.applied:
			if p, ok := c.Policy("multi-tier"); !ok || p.Limits[2].Amount != 7 || c.Store != "memory:" {
				t.Errorf("the environment or the flags were lost in %s", c)
			}
			return c
		case err := <-w.failed:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatal("the change was not seen")
		}
		return nil
	}
	if c := next(func() { replace(t, at("rules.yaml"), rule(2)) }); c.Rules[0].Name != "r2" {
		t.Errorf("rule %s is in force", c.Rules[0].Name)
	}
	before := next(func() { replace(t, at("envoy/two.yaml"), "domain: b") })
	if c := next(func() {
		replace(t, at("token"),
			"fedcba9876543210\n")
	}); c.Server.Tokens[0].Sum == before.Server.Tokens[0].Sum {
		t.Error("the old token is in force")
	}
	next(func() { must(t, os.Remove(at("envoy/one.yaml"))) })
	next(func() { must(t, os.Mkdir(at("envoy/below"), 0o700)); replace(t, at("envoy/below/.three"), "domain: c") })
	next(func() { replace(t, at("envoy/below/.three"), "domain: d") })
}

// Reload reads and applies the files whether anything changed or not, and returns mistakes.
func TestReload(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	must(t, w.Reload(t.Context()))
	w.until(1)
	replace(t, path, "policies: 1")
	if _, ok := errors.AsType[config.Problems](w.Reload(t.Context())); !ok {
		t.Error("the mistake was not returned")
	}
	if _, ok := errors.AsType[config.Problems](w.fails()); !ok {
		t.Error("the mistake was not told")
	}
	w.refuse = errors.New("no room")
	replace(t, path, fileOf(2))
	if err := w.Reload(t.Context()); !errors.Is(err, w.refuse) {
		t.Errorf("Reload = %v, want what apply returned", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Reload(ctx); err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, w.refuse) {
		t.Errorf("Reload = %v", err)
	}
	w.Close()
	if err := w.Reload(t.Context()); !errors.Is(err, config.ErrNotWatching) {
		t.Errorf("Reload after Close = %v", err)
	}
}

// A watcher ends with its context, and makes no call after Close.
func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c, err := config.Resolve(nil, config.Flags{Config: path})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := config.Watch(ctx, c, func(*config.Config) error { return nil }, nil)
	cancel()
	w.Close()
	if err := w.Reload(t.Context()); !errors.Is(err, config.ErrNotWatching) {
		t.Errorf("Reload after the end = %v", err)
	}
	parsed, problems := config.Parse("f", []byte(fileOf(1)))
	if len(problems) > 0 {
		t.Fatalf("got problems %v, want none", problems)
	}
	w = config.Watch(t.Context(), parsed, func(*config.Config) error { return nil }, nil)
	defer w.Close()
	if err := w.Reload(t.Context()); err == nil {
		t.Error("what was not resolved was read again")
	}
}

// A truncated file may be valid but limit nothing, so the old configuration stays in force. Limits
// are switched off only explicitly.
func TestWatchRefusesWhatLeavesNoPolicy(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	replace(t, path, "")
	if err := w.fails(); !strings.Contains(err.Error(), path+": there are no policies") {
		t.Errorf("told %v", err)
	}
	replace(t, path, "enabled: false\n"+fileOf(2))
	if c := w.next(); !c.Off || !c.Engine().Policies[0].Disabled {
		t.Errorf("applied %s", c)
	}
}

// If Envoy's files have limits, a server needs no other policies.
func TestWatchTakesEnvoysFilesForPolicies(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	w := watch(t, nil, config.Flags{Config: path}, noPoll)
	replace(t, path, "envoy: {configs: [edge.yaml]}\n")
	if c := w.next(); len(c.Envoy.Configs) != 1 || len(c.Policies) != 0 {
		t.Errorf("applied %s", c)
	}
}
