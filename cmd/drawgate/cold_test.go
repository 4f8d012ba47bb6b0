package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// Functions that start while DynamoDB is unavailable go on with the presets of document A, each
// with one request a minute, and stay within what `drawgate bound` prints.
//
// req: A10
func TestColdFunctionsGoOn(t *testing.T) {
	t.Parallel()
	const mature, cold = 2, 4
	for _, preset := range []string{config.GeminiTranslation, config.GeminiTranslationBucket} {
		t.Run(preset, func(t *testing.T) {
			t.Parallel()
			text, err := config.Preset(preset)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "drawgate.yaml")
			if err := os.WriteFile(path, text, 0o600); err != nil {
				t.Fatal(err)
			}
			const store = "dynamodb://quotas?region=eu-central-1"
			c, err := config.Resolve(nil, config.Flags{Config: path, Store: store})
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			a := &app{json: true, out: &out, errOut: &out, flags: config.Flags{Store: store}}
			if err := a.bound([]string{path}, assumed{instances: mature, starts: cold}); err != nil {
				t.Fatal(err)
			}
			var lines []excess
			if err := json.Unmarshal(out.Bytes(), &lines); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { coldFunctions(t, c, lines, mature, cold) })
		})
	}
}

func coldFunctions(t *testing.T, c *config.Config, lines []excess, mature, cold int) {
	t.Helper()
	shared, said := memstore.New(nil), c.SharedBy()
	var functions []*drawgate.Limiter
	var ways []*cuttable
	start := func(cut bool) {
		w := &cuttable{Store: shared}
		w.cut.Store(cut)
		g := guard.New(w, &guard.Options{
			Instances: said.Number, CountInstances: said.Auto, CountInCalls: true,
			Start: c.Start, Owner: func() bool { return false },
		})
		lim, err := drawgate.New(g.Full(), c.Policies[0], nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { lim.Close(); g.Close() })
		functions, ways = append(functions, lim), append(ways, w)
	}
	call := func(lim *drawgate.Limiter, key string) (n int64) {
		for {
			d, err := lim.Allow(t.Context(), key, drawgate.Requests(1), drawgate.Units("input_tokens", 100))
			if err != nil {
				t.Fatal(err)
			}
			if !d.Allowed {
				return n
			}
			n++
		}
	}
	for range mature {
		start(false)
	}
	for range 5 { // they are counted in calls
		for _, f := range functions {
			call(f, "other")
		}
		time.Sleep(time.Minute)
	}
	n := call(functions[0], "k")
	for _, w := range ways {
		w.cut.Store(true)
	}
	for range cold {
		start(true)
	}
	rpm, rpd := lines[0], lines[2]
	day := n
	for minute := range 5 {
		for i, f := range functions {
			got := call(f, "k")
			n += got
			if i >= mature && got != 1 {
				t.Errorf("minute %d: a function that started without DynamoDB makes %d calls, want 1", minute, got)
			}
		}
		beyond := *rpm.Later
		if minute == 0 {
			beyond = *rpm.Extra
		}
		if l := c.Policies[0].Limits[0]; minute > 0 && l.Kind == drawgate.Bucket {
			beyond += l.Amount // what drains in the minute
		}
		if n > rpm.Most+beyond {
			t.Errorf("minute %d: %d calls, want at most %d", minute, n, rpm.Most+beyond)
		}
		day, n = day+n, 0
		time.Sleep(time.Minute + 3*time.Second) // their margin is 2 s
	}
	if day > rpd.Most+*rpd.Extra {
		t.Errorf("%d calls in the day, want at most %d", day, rpd.Most+*rpd.Extra)
	}
}
