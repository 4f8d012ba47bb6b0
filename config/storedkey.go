package config

import (
	"errors"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/engine"
)

const keysInStore = "gateway.keys_in_store"

// checkKeysInStore checks that there is a store for keys, and that not everybody can make them.
func (c *Config) checkKeysInStore() (problems Problems) {
	if !c.Gateway.KeysIn || c.partial {
		return nil
	}
	s := &c.Server
	admins := slices.ContainsFunc(s.Tokens, func(t Token) bool { return slices.Contains(t.Roles, "admin") })
	if !admins && s.TLS.ClientCA == "" && !s.Insecure && s.Admin != ListenOff {
		problems = append(problems, c.note(keysInStore,
			"nobody could change keys in the store, or everybody who reaches the address for administrators",
			"give server.tokens one with the role admin, such as {name: ops, token_env: OPS_TOKEN, role: admin}"))
	}
	return problems
}

// warnKeysInStore warns of keys that end with the process.
func (c *Config) warnKeysInStore() {
	if c.Gateway.KeysIn && c.local() {
		c.warnOf(keysInStore, "name a store on SQLite, Redis, PostgreSQL or DynamoDB",
			"keys in the store are lost when this process ends, and no other one has them: the store is its memory")
	}
}

// CheckStoredKey returns what speaks against a key of the store, with these models and so on: the
// file has its name, or nothing of what it may use, or no limits to which its amounts belong.
func (c *Config) CheckStoredKey(k *VirtualKey, amounts engine.Amounts) error {
	g := &c.Gateway
	if slices.ContainsFunc(g.Keys, func(of VirtualKey) bool { return of.Name == k.Name }) {
		return errors.New("the configuration file has a key of this name: choose another one, or change it there")
	}
	var names []string
	for i := range g.Upstreams {
		names = append(names, g.Upstreams[i].Name)
	}
	var texts []string
	for _, p := range c.checkKey("the key", keysInStore, k, names) {
		texts = append(texts, p.Message+"; "+p.Hint)
	}
	if len(texts) > 0 {
		return errors.New(strings.Join(texts, "; "))
	}
	policies := c.Engine()
	return policies.CheckAmounts(k.Name, `attr("key")`, amounts)
}
