package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/engine"
)

// Use puts another configuration in force: its policies, rules, API keys and queue. What was
// counted stays counted. After an error nothing has changed. Changes that need a restart are
// logged, and [Runtime.Reload] returns them too: [Runtime.Config] keeps the old values of these.
func (r *Runtime) Use(next *Config) error {
	conf, log := next.Engine(), r.opts.Logger
	restart, err := r.replace(next, &conf)
	if err != nil {
		return err
	}
	for _, key := range restart {
		log.Warn("this change needs a restart: " + key)
	}
	if path, ok := SQLitePath(next.Store); ok && slices.Contains(restart, "store") {
		if err := writable(filepath.Dir(path)); err != nil {
			log.Warn("a restart would fail: this process cannot write where the new store is", "store", path, "error", err)
		}
	}
	if name := next.leased(); name != "" && !r.leases && !next.local() {
		log.Warn("leased policies are exact until a restart, because none was leased when the program started", "policy", name)
	}
	r.warn(next.Warnings)
	log.Info("the new configuration is in force", "policies", len(conf.Listed()), "rules", len(conf.Rules))
	return nil
}

// writable returns an error if this process cannot create files in a folder. The database itself is
// not opened: closing it would end locks that this process may have on it.
func writable(folder string) error {
	f, err := os.CreateTemp(folder, ".drawgate-")
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// replace puts a configuration in force, in the engine and everywhere else. conf is its engine's.
func (r *Runtime) replace(next *Config, conf *engine.Config) (restart []string, err error) {
	r.using.Lock()
	defer r.using.Unlock()
	if err := r.Engine.Replace(*conf); err != nil {
		return nil, err
	}
	now := r.config.Load()
	restart = needsRestart(now, next)
	r.restart.Store(&restart)
	if r.Metrics != nil {
		r.Metrics.RestartPending(len(restart) > 0)
	}
	r.config.Store(next.keeping(now, restart))
	r.declare(conf)
	return restart, nil
}

// warn logs the warnings of a configuration.
func (r *Runtime) warn(list []Problem) {
	for _, w := range list {
		r.opts.Logger.Warn(w.OneLine())
	}
}

// Watch begins to watch the files of the configuration, until Close. apply is called with each new
// version, and calls [Runtime.Use]. Only the first call has an effect, and none after Close: what
// [Open] returns is watched already.
func (r *Runtime) Watch(ctx context.Context, apply func(*Config) error) {
	r.life.Lock()
	defer r.life.Unlock()
	if r.files != nil || r.closed {
		return
	}
	r.files = Watch(ctx, r.Config(), func(c *Config) error {
		err := apply(c)
		if err == nil {
			r.reloaded(nil) // Failed reports errors
		}
		return err
	}, &WatchOptions{Logger: r.opts.Logger, Failed: func(err error) {
		r.reloaded(err)
		r.opts.Logger.Warn("the new configuration is not in force; the old one is", "error", err)
	}})
}

func (r *Runtime) reloaded(err error) {
	if r.Metrics != nil {
		r.Metrics.Reloaded(err)
	}
}

// Reload reads the files now, whether they have changed or not, and puts them in force if they have
// no mistakes. It returns the keys whose new values need a restart.
func (r *Runtime) Reload(ctx context.Context) (restart []string, err error) {
	r.life.Lock()
	files := r.files
	r.life.Unlock()
	if files == nil {
		return nil, errors.New("config: the files are not watched: call Watch before Reload")
	}
	if err := files.Reload(ctx); err != nil {
		return nil, err
	}
	return *r.restart.Load(), nil
}

// fixed are the keys whose values a running program cannot change.
var fixed = []struct {
	key   string
	value func(c *Config) any
}{
	{"store", func(c *Config) any { return c.Store }},
	{"prefix", func(c *Config) any { return c.Prefix }},
	{"max_buckets", func(c *Config) any { return c.MaxBuckets }},
	{"instances", func(c *Config) any { return c.Instances }},
	{"store_timeout", func(c *Config) any { return c.StoreTimeout }},
	{"store_mark", func(c *Config) any { return c.RequireMark }},
	{"store_batches", func(c *Config) any { return c.NoBatches }},
	{"store_recovery", func(c *Config) any { return c.NoRecovery }},
	{"warn_every", func(c *Config) any { return c.WarnEvery }},
	{"start", func(c *Config) any { return c.Start }},
	{"server", func(c *Config) any { return c.Server }},
	{"telemetry", func(c *Config) any { return c.Telemetry }},
	{"gateway", func(c *Config) any { return c.Gateway.withUse(&Gateway{}) }},
	{"envoy", func(c *Config) any { return c.Envoy.withFiles(&Envoy{}) }},
}

// needsRestart returns the keys that differ but cannot change while the program runs. Secrets are
// compared by value, and never shown.
func needsRestart(old, next *Config) (keys []string) {
	for _, f := range fixed {
		if !reflect.DeepEqual(f.value(old), f.value(next)) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

// reread are settings that are put in force at each reload, though others of their key are fixed:
// see [Envoy.withFiles] and [Gateway.withUse].
var reread = []string{
	"envoy.configs", "envoy.merge", "envoy.windows", "envoy.leased", "gateway.upstreams", "gateway.aliases",
	"gateway.keys", "gateway.tokens", "gateway.prices",
}

// fixedKey returns the key of a setting, such as server of server.tls, and whether a change of the
// setting needs a restart.
func fixedKey(setting string) (key string, isFixed bool) {
	key, _, _ = strings.Cut(setting, ".")
	for _, f := range fixed {
		if f.key == key {
			return key, !slices.ContainsFunc(reread, func(name string) bool { return strings.HasPrefix(setting, name) })
		}
	}
	return key, false
}

// withFiles returns the settings with another one's files, which are read again at each reload.
func (v *Envoy) withFiles(of *Envoy) Envoy {
	e := *v
	e.Configs, e.Merge, e.Aligned, e.Policies = of.Configs, of.Merge, of.Aligned, of.Policies
	return e
}

// withUse returns the settings with what another one says of upstreams and callers, which is put in
// force at each reload.
func (g *Gateway) withUse(of *Gateway) Gateway {
	k := *g
	k.Upstreams, k.Aliases, k.Keys, k.Tokens, k.Prices = of.Upstreams, of.Aliases, of.Keys, of.Tokens, of.Prices
	return k
}

// keeping returns a copy of the configuration that keeps the fixed values of now. restart names
// those of their keys that differ: they also keep the places that their values came from.
func (c *Config) keeping(now *Config, restart []string) *Config {
	k := *c
	k.Store, k.Prefix, k.MaxBuckets, k.Instances = now.Store, now.Prefix, now.MaxBuckets, now.Instances
	k.StoreTimeout, k.WarnEvery, k.Start, k.RequireMark = now.StoreTimeout, now.WarnEvery, now.Start, now.RequireMark
	k.NoBatches, k.NoRecovery = now.NoBatches, now.NoRecovery
	k.Server, k.Telemetry, k.Envoy = now.Server, now.Telemetry, now.Envoy.withFiles(&c.Envoy)
	k.Gateway = now.Gateway.withUse(&c.Gateway)
	kept := func(setting string) bool {
		key, isFixed := fixedKey(setting)
		return isFixed && slices.Contains(restart, key)
	}
	k.origins, k.at = combine(now.origins, c.origins, kept), combine(now.at, c.at, kept)
	k.paths = nil
	for _, p := range now.paths {
		if kept(p.Setting) {
			k.paths = append(k.paths, p)
		}
	}
	for _, p := range c.paths {
		if !kept(p.Setting) {
			k.paths = append(k.paths, p)
		}
	}
	return &k
}

// combine returns what now has of the settings that are kept, and what next has of the others.
func combine[V any](now, next map[string]V, kept func(setting string) bool) map[string]V {
	m := map[string]V{}
	for setting, v := range now {
		if kept(setting) {
			m[setting] = v
		}
	}
	for setting, v := range next {
		if !kept(setting) {
			m[setting] = v
		}
	}
	return m
}
