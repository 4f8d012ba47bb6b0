package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
)

// cuttable is a store that can be cut off.
type cuttable struct {
	drawgate.Store

	cut atomic.Bool
}

func (s *cuttable) err(op string) error {
	if s.cut.Load() {
		return &drawgate.StoreError{Store: "test", Op: op, Err: errors.New("connection refused")}
	}
	return nil
}

func (s *cuttable) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	if err := s.err("take"); err != nil {
		return err
	}
	return s.Store.Take(ctx, batch, out)
}

func (s *cuttable) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	if err := s.err("settle"); err != nil {
		return err
	}
	return s.Store.Settle(ctx, batch, out)
}

func (s *cuttable) Peek(ctx context.Context, b []store.BucketCost, priority int8, out []store.State) error {
	if err := s.err("peek"); err != nil {
		return err
	}
	return s.Store.Peek(ctx, b, priority, out)
}

// The presets go on deciding without Redis although the number of servers is not configured: two
// servers count each other, and each goes on with its share.
//
// req: A10, B11
func TestPresetsGoOnDecidingWithoutRedis(t *testing.T) {
	t.Parallel()
	redis := config.Flags{Store: "redis://h/0"}
	for name, environ := range map[string][]string{
		config.GeminiTranslation: nil, config.GeminiTranslationBucket: nil, config.HTTPAPI: nil, config.Global: nil,
		"flags": {"ENABLE_DISTRIBUTED_RATE_LIMITING=true", "RATE_LIMIT_REDIS_URL=redis://h/0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flags := redis
			if environ == nil {
				text, err := config.Preset(name)
				if err != nil {
					t.Fatal(err)
				}
				flags.Config = filepath.Join(t.TempDir(), "drawgate.yaml")
				if err := os.WriteFile(flags.Config, text, 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				flags = config.Flags{}
			}
			c, err := config.Resolve(environ, flags)
			if err != nil || len(c.Policies) == 0 {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) { continueAfterRestart(t, c) })
		})
	}
}

func continueAfterRestart(t *testing.T, c *config.Config) {
	t.Helper()
	said := c.SharedBy()
	ways := [2]*cuttable{}
	guards := [2]*guard.Store{}
	shared := memstore.New(nil)
	for i := range guards {
		ways[i] = &cuttable{Store: shared}
		guards[i] = guard.New(ways[i], &guard.Options{Instances: said.Number, CountInstances: said.Auto})
		defer guards[i].Close()
	}
	time.Sleep(45 * time.Second)
	allow := func(g *guard.Store, p drawgate.Policy) drawgate.Decision {
		lim, err := drawgate.New(g.Full(), p, nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := lim.Allow(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	for _, p := range c.Policies {
		for _, g := range guards {
			if d := allow(g, p); !d.Allowed || d.Fallback {
				t.Fatalf("policy %s with Redis: %+v", p.Name, d)
			}
		}
	}
	for _, w := range ways {
		w.cut.Store(true)
	}
	time.Sleep(time.Minute)
	for _, p := range c.Policies {
		for i, g := range guards {
			if d := allow(g, p); !d.Allowed || !d.Fallback {
				t.Errorf("policy %s without Redis, server %d: %+v, want its share", p.Name, i, d)
			}
		}
	}
}
