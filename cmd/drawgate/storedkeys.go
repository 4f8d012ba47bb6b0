package main

import (
	"context"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/virtualkey"
)

// openKeys reads the keys of the store, if it keeps any, and gives them to the gateway.
func (v *service) openKeys() (err error) {
	if !v.run.Config().Gateway.KeysIn {
		return nil
	}
	v.keys, err = virtualkey.Open(context.Background(), v.run.Store, config.NewSecret, &virtualkey.Options{
		Changed: v.useKeys, Check: v.checkKey, Logger: v.log,
	})
	return err
}

// useKeys puts keys of the store in force in the gateway.
func (v *service) useKeys(put []*virtualkey.Key, gone []string) {
	list, amounts := make([]*gateway.Key, len(put)), map[string]engine.Amounts{}
	for i, k := range put {
		list[i], amounts[k.Name] = storedKey(k), k.Limits
	}
	for _, name := range gone {
		amounts[name] = nil
	}
	v.run.Engine.GiveAmounts(amounts) // before a key that is new can be used
	if err := v.gateway.UseStored(list, gone); err != nil {
		v.log.Error("a key of the store is not in force", "error", err)
	}
	names := map[string]bool{}
	for _, k := range put {
		names[k.Name] = true
	}
	v.warnDoubled(&v.run.Config().Gateway, func(name string) bool { return names[name] })
}

// warnDoubled logs the keys of a configuration that the store has as well.
func (v *service) warnDoubled(g *config.Gateway, stored func(name string) bool) {
	for i := range g.Keys {
		if name := g.Keys[i].Name; stored(name) {
			v.log.Warn("the configuration file and the store have a key of the same name: that of the file is in force, and none if one of them is disabled or has expired",
				"key", name)
		}
	}
}

// checkKey returns what speaks against a key that an administrator wants.
func (v *service) checkKey(name string, s *api.KeySettings) error {
	return v.run.Config().CheckStoredKey(&config.VirtualKey{
		Name: name, Models: s.Models, Others: s.Others, Paths: s.Paths,
	}, s.Limits)
}

// storedKey converts a key.
func storedKey(k *virtualkey.Key) *gateway.Key {
	out := &gateway.Key{
		Name: k.Name, Team: k.Team, User: k.User, Class: k.Class, Disabled: k.Disabled, Priority: k.Priority,
		Models: k.Models, Others: k.Others, Paths: k.Paths, Addresses: k.Networks(),
	}
	if k.Expires != nil {
		out.Expires = *k.Expires
	}
	for i := range k.Secrets {
		s := gateway.KeySecret{Sum: k.Secrets[i].Sum}
		if until := k.Secrets[i].Until; until != nil {
			s.Until = *until
		}
		out.Secrets = append(out.Secrets, s)
	}
	return out
}
