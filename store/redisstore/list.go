package redisstore

import (
	"context"
	"errors"
	"hash/maphash"
	"strings"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// Reset implements [store.Resetter].
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	c, err := s.begin(ctx, "reset")
	if err != nil {
		return err
	}
	defer s.end()
	for len(keys) > 0 {
		page := keys[:min(len(keys), pageSize)]
		keys = keys[len(page):]
		if err := s.resetAll(ctx, c, page); err != nil {
			return err
		}
	}
	return nil
}

// resetAll empties buckets. A key that holds something else is deleted.
func (s *Store) resetAll(ctx context.Context, c rueidis.Client, keys []store.Key) error {
	reqs, todo := make([]request, len(keys)), make([]*request, len(keys))
	for i, k := range keys {
		r := &reqs[i]
		r.op, r.keys, r.looked, todo[i] = opReset, r.oneKey[:], s.answerReset, r
		r.keys[0], _ = storekey.Format(s.prefix, k)
	}
	s.oneByOne(ctx, c, "reset", todo, true)
	var foreign []string
	for i := range reqs {
		r := &reqs[i]
		if se, ok := errors.AsType[*store.Error](r.err); ok && se.Fault == store.FaultBucket {
			foreign = append(foreign, r.keys[0])
		} else if r.err != nil {
			return r.err
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	return failure("reset", s.unlink(ctx, c, foreign), foreign)
}

func (s *Store) answerReset(m *rueidis.RedisMessage) error {
	code, now, _, err := answered(m)
	if err != nil || code != gotDone {
		return errAnswer
	}
	s.learn(now)
	return nil
}

func (s *Store) unlink(ctx context.Context, c rueidis.Client, names []string) error {
	if !s.cluster {
		return c.Do(ctx, c.B().Unlink().Key(names...).Build()).Error()
	}
	cmds := make(rueidis.Commands, len(names)) // each is in a slot of its own
	for i, name := range names {
		cmds[i] = c.B().Unlink().Key(name).Build()
	}
	for _, r := range c.DoMulti(ctx, cmds...) {
		if err := r.Error(); err != nil {
			return err
		}
	}
	return nil
}

// pageSize is how many keys one step looks at.
const pageSize = 500

// List implements [store.Lister]. It goes through all keys of the server's database in small steps;
// in a cluster those of one primary after the other, and a bucket whose slot is moved meanwhile may
// be missed.
func (s *Store) List(ctx context.Context, tenant, policy string, yield func(store.Key) bool) error {
	c, err := s.begin(ctx, "list")
	if err != nil {
		return err
	}
	defer s.end()
	if strings.HasPrefix(policy, store.OwnPolicies) {
		return s.listIndexed(ctx, c, tenant, policy, yield)
	}
	nodes := []rueidis.Client{c}
	if s.cluster {
		if nodes, err = s.primaries(ctx, c); err != nil {
			return failure("list", err, nil)
		}
	}
	seed, seen := maphash.MakeSeed(), map[uint64]bool{} // SCAN may name a key twice
	fresh := func(name string) bool {
		h := maphash.String(seed, name)
		was := seen[h]
		seen[h] = true
		return !was
	}
	for _, node := range nodes {
		more, err := s.listOn(ctx, c, node, tenant, policy, fresh, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// listOn lists the buckets of one server. more is false if the caller wants no more of them.
func (s *Store) listOn(ctx context.Context, c, node rueidis.Client, tenant, policy string, fresh func(string) bool,
	yield func(store.Key) bool,
) (more bool, err error) {
	match := keysOf(s.prefix, tenant, policy)
	for cursor := uint64(0); ; {
		page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(match).Count(pageSize).Build()).AsScanEntry()
		if err != nil {
			return false, failure("list", err, nil)
		}
		names := page.Elements[:0]
		for _, name := range page.Elements {
			if fresh(name) {
				names = append(names, name)
			}
		}
		keys, err := s.inUse(ctx, c, names)
		if err != nil {
			return false, failure("list", err, names)
		}
		for _, k := range keys {
			if k.Tenant == tenant && k.Policy == policy && !yield(k) {
				return false, nil
			}
		}
		if cursor = page.Cursor; cursor == 0 {
			return true, nil
		}
	}
}

// inUse returns the keys of the buckets in which something is used or held.
func (s *Store) inUse(ctx context.Context, c rueidis.Client, names []string) (keys []store.Key, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	cmds := make(rueidis.Commands, 0, 1+len(names))
	cmds = append(cmds, c.B().Time().Build().SetSlot(names[0]))
	for _, name := range names {
		cmds = append(cmds, c.B().Hmget().Key(name).Field("h", "k").Build())
	}
	res := c.DoMulti(ctx, cmds...)
	time, err := res[0].AsIntSlice()
	if err != nil {
		return nil, err
	}
	if len(time) != 2 {
		return nil, errAnswer
	}
	now := time[0]*1e6 + time[1]
	if s.clock != nil {
		now = s.clock()
	}
	for i, name := range names {
		got, err := res[1+i].AsStrSlice()
		if err != nil {
			if _, ok := rueidis.IsRedisErr(err); ok {
				continue // not a bucket
			}
			return nil, err
		}
		if len(got) != 2 || got[0] == "" { // it has expired meanwhile
			continue
		}
		st, err := readHeader(got[0], 1)
		if err != nil {
			return nil, err
		}
		if st.idle(now) {
			continue
		}
		k, err := storekey.Parse(s.prefix, name, got[1])
		if errors.Is(err, storekey.ErrKey) {
			continue
		}
		if err != nil {
			return nil, err
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// idle reports whether nothing in a bucket is used or held any more.
func (st *stored) idle(now int64) bool {
	if st.open > 0 && now < st.ends {
		return false
	}
	st.complete(nil)
	held := false
	for i := range st.rec.Limits {
		held = held || st.rec.Limits[i].Held > 0 // its hold has ended, but is not recorded as ended yet
	}
	return !held && st.rec.Until() <= max(now, st.rec.Last)
}

// keysOf returns a SCAN pattern for the keys of a policy.
func keysOf(prefix, tenant, policy string) string {
	var b strings.Builder
	for i := range len(prefix) {
		if strings.IndexByte(`*?[]\`, prefix[i]) >= 0 {
			b.WriteByte('\\')
		}
		b.WriteByte(prefix[i])
	}
	return b.String() + storekey.Start("", tenant, policy) + "*"
}
