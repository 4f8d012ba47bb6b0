package redisstore

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// The buckets of a policy of our own are found by an index: a hash whose fields are their names.
// Its key is no bucket's, because no part of that begins with "%i".

// indexKey is the key of the index of a tenant and a policy.
func (s *Store) indexKey(tenant, policy string) string {
	return s.prefix + ":%index" + strings.TrimSuffix(storekey.Start("", tenant, policy), ":")
}

// Index implements [store.Indexer].
func (s *Store) Index(ctx context.Context, keep time.Duration, keys []store.Key) error {
	c, err := s.begin(ctx, "index")
	if err != nil {
		return err
	}
	defer s.end()
	names := map[string][]string{}
	for _, k := range keys {
		at := s.indexKey(k.Tenant, k.Policy)
		names[at] = append(names[at], k.Name)
	}
	cmds := make(rueidis.Commands, 0, 2*len(names))
	for at, list := range names {
		set := c.B().Hset().Key(at).FieldValue()
		for _, name := range list {
			set = set.FieldValue(name, "")
		}
		cmds = append(cmds, set.Build(), c.B().Pexpire().Key(at).Milliseconds(keep.Milliseconds()).Build())
	}
	for _, r := range c.DoMulti(ctx, cmds...) {
		if err := r.Error(); err != nil {
			return failure("index", err, nil)
		}
	}
	return nil
}

// listIndexed lists the buckets that were noted.
func (s *Store) listIndexed(ctx context.Context, c rueidis.Client, tenant, policy string,
	yield func(store.Key) bool,
) error {
	names, err := c.Do(ctx, c.B().Hkeys().Key(s.indexKey(tenant, policy)).Build()).AsStrSlice()
	if err != nil {
		return failure("list", err, nil)
	}
	for _, name := range names {
		if !yield(store.Key{Tenant: tenant, Policy: policy, Name: name}) {
			break
		}
	}
	return nil
}
