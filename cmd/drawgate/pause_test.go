//go:build unix

package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
)

// Once a pause was answered, the next take in every process is refused, whichever process was
// asked. Each server has used the bucket before, so that anything it caches exists. An unpause
// ends the pause for all.
func TestPauseHoldsInEveryProcess(t *testing.T) {
	t.Parallel()
	for name, store := range map[string]func(t *testing.T) string{
		"sqlite": func(*testing.T) string { return "sqlite:counts.db" },
		"redis":  func(t *testing.T) string { t.Helper(); return "redis://" + redistest.Start(t).Addr },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.write("drawgate.yaml", `
store: `+store(t)+`
store_timeout: 20s
policies: {api: {limits: [{name: rph, rolling: 1h, amount: 1000}, {name: rate, bucket: 1h, amount: 1000}]}}
`)
			b.env = append(b.env, "DRAWGATE_CONFIG="+b.dir+"/drawgate.yaml")
			var servers [3]*daemon
			for i := range servers {
				servers[i] = b.daemon()
			}
			rounds := 3
			if needs.Long() {
				rounds = 100
			}
			for round := range rounds {
				for _, d := range servers {
					if a := d.took(t, "k"); !a.Allowed {
						t.Fatalf("before the pause: %+v", a)
					}
				}
				pause := []string{"pause", "--key", "k", "--for", "1h", "--reason", "429 of the provider"}
				by := servers[round%3]
				if round%2 == 0 { // through a server, or by the command itself
					pause = append(pause, "--server", by.admin)
				}
				if out, code := b.do(pause...); code != 0 || !strings.HasPrefix(out, "paused: key k, until 20") {
					t.Fatalf("pause: %d %s", code, out)
				}
				for i, d := range servers {
					a := d.took(t, "k")
					if a.Allowed || a.Reason != api.ReasonPaused || a.RetryAfterMS.Duration() < 30*time.Minute {
						t.Errorf("round %d: the first take of server %d: %+v", round, i, a)
					}
				}
				if out, code := b.do("take", "--key", "k"); code != exitRefused ||
					!strings.HasPrefix(out, `refused: this key of policy "api" is paused; try again in `) {
					t.Errorf("a command: %d %s", code, out)
				}
				if out, code := b.do("status", "--key", "k"); code != 0 ||
					!strings.Contains(out, "\npaused, ends in ") || !strings.Contains(out, ": 429 of the provider\n") {
					t.Errorf("status: %d %s", code, out)
				}
				if out, code := b.do("explain", "--key", "k"); code != exitRefused ||
					!strings.Contains(out, "\n- paused, ends in ") {
					t.Errorf("explain: %d %s", code, out)
				}
				if a := servers[0].took(t, "other"); !a.Allowed {
					t.Errorf("another key: %+v", a)
				}
				unpause := []string{"unpause", "--key", "k", "--reason", "over"}
				if round%2 == 1 {
					unpause = append(unpause, "--server", by.admin)
				}
				if out, code := b.do(unpause...); code != 0 ||
					!strings.HasPrefix(out, "ended: the pause of policy api, key k until 20") {
					t.Fatalf("unpause: %d %s", code, out)
				}
				for _, d := range servers {
					if a := d.took(t, "k"); !a.Allowed {
						t.Errorf("after the pause: %+v", a)
					}
				}
			}
		})
	}
}

// took takes one request.
func (d *daemon) took(t *testing.T, key string) (a api.Answer) {
	t.Helper()
	r, err := d.ask(d.public+"/v1/take", api.Take{Bucket: api.Bucket{Key: key}})
	if err != nil || r.code != 200 {
		t.Fatalf("take: %+v, %v", r, err)
	}
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Without a database a pause creates one, because it must hold for the first take, too. Mistakes in
// a pause are found before anything is done. Its reason cannot control a terminal.
func TestPauseChecksWhatItIsAsked(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, args := range [][]string{
		{"pause"},
		{"pause", "--for", "1s", "--until", "2030-01-01T00:00:00Z"},
		{"pause", "--until", "tomorrow"},
		{"pause", "--for", "-1s"},
		{"pause", "--for", "32d"},
		{"pause", "--until", "2020-01-01T00:00:00Z"},
		{"pause", "--for", "1s", "--reason", "a\x1b[2J"},
		{"pause", "--for", "1s", "--reason", strings.Repeat("x", 257)},
		{"pause", "--for", "1s", "--policy", "nope"},
	} {
		if out, code := b.do(args...); code != exitUsage || out != "" {
			t.Errorf("%q: got exit code %d and %q, want %d and no output", args, code, out, exitUsage)
		}
	}
	if out, code := b.do("pause", "--for", "1h", "--reason", "a\u202eb", "--json"); code != 0 ||
		!strings.HasPrefix(out, `{"until":"20`) {
		t.Errorf("pause: %d %s", code, out)
	}
	if out, code := b.do("take"); code != exitRefused || !strings.HasPrefix(out,
		"refused: this key of policy \"sample\" is paused") {
		t.Errorf("take: %d %s", code, out)
	}
	if out, code := b.do("status"); code != 0 || !strings.Contains(out, `: a\u202eb`) {
		t.Errorf("status: %d %s", code, out)
	}
}
