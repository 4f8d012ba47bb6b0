//go:build unix

package config_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/drawgate/drawgate/config"
)

// A named pipe in place of a file must not make a reload, or the end of the watching, wait for a
// writer.
func TestWatchOpensNoNamedPipes(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"main.yaml", "rules.yaml", "salt", "link-to-pipe", "envoy/more.yaml", "envoy.yaml"} {
		t.Run(strings.ReplaceAll(name, "/", " in "), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			at := func(name string) string { return filepath.Join(dir, name) }
			must(t, os.Mkdir(at("envoy"), 0o700))
			for name, text := range map[string]string{
				"main.yaml": fileOf(1) + "telemetry: {salt_file: " + at("salt") + "}\nenvoy: {configs: [" +
					at("envoy") + ", " + at("envoy.yaml") + "]}\n",
				"rules.yaml": "rules: [{match: {path: /a}, apply: [{policy: a, key: ip}]}]\n",
				"salt":       "a salt that nobody guesses", "envoy/more.yaml": "domain: a\n",
				"envoy.yaml": "domain: b\n",
			} {
				must(t, os.WriteFile(at(name), []byte(text), 0o600))
			}
			w := watch(t, nil, config.Flags{Config: at("main.yaml"), Rules: at("rules.yaml")}, noPoll)
			path := at(name)
			if name == "link-to-pipe" { // the configuration is a link to one
				path = at("main.yaml")
				must(t, errors.Join(os.Remove(path), syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("pipe", path)))
			} else {
				must(t, errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)))
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := w.Reload(ctx)
			if foreign := strings.HasPrefix(name, "envoy"); ctx.Err() != nil ||
				!foreign && (err == nil || !strings.Contains(err.Error(), "a named pipe")) {
				// Envoy's files are only compared here: whoever uses them says what is wrong
				t.Errorf("Reload = %v", err)
			}
		})
	}
}

// An operation that hangs when the watching ends, for example on an unavailable file system, does
// not delay the end of the program.
func TestCloseDoesNotWaitForever(t *testing.T) {
	t.Parallel()
	path := newFile(t)
	c, err := config.Resolve(nil, config.Flags{Config: path})
	must(t, err)
	begun, end := make(chan struct{}), make(chan struct{})
	w := config.Watch(t.Context(), c, func(*config.Config) error {
		close(begun)
		<-end
		return nil
	}, config.WatchOptions{}.ClosedWithin(time.Millisecond))
	reloaded := make(chan error, 1)
	go func() { reloaded <- w.Reload(t.Context()) }()
	<-begun
	w.Close() // the test's time-out is what would notice
	close(end)
	if err := <-reloaded; err != nil {
		t.Errorf("Reload = %v", err)
	}
}
