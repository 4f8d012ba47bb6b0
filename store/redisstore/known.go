package redisstore

import (
	"context"
	_ "embed"
	"sync"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// Takes and settlements over several slots look first whether their reservation is open.

//go:embed known.lua
var knownBody string

var knownScript = inLibrary("known", func() string { return knownBody })

// known is what a bucket says of a reservation.
type known struct {
	now     int64
	paused  bool
	open    bool // and the rest is set
	grant   store.Grant
	content uint64
	end     int64
	lease   bool

	limits []record.State // as they are stored
}

// otherRate reports whether a limit of a plan is stored with another rate.
func (k *known) otherRate(plan *store.Plan) bool {
	for _, s := range store.Internal.Specs(plan, false) {
		for i := range k.limits {
			if l := &k.limits[i]; l.ID == s.ID && l.Kind == record.Bucket && l.Rate != s.Rate {
				return true
			}
		}
	}
	return false
}

// lookForID returns what each bucket says of a reservation. Nothing is written.
func (s *Store) lookForID(ctx context.Context, op string, buckets []store.BucketCost, id string) ([]known, error) {
	c, err := s.begin(ctx, op)
	if err != nil {
		return nil, err
	}
	defer s.end()
	found, errs := make([]known, len(buckets)), make([]error, len(buckets))
	var all sync.WaitGroup
	for i := range buckets {
		key, _ := storekey.Format(s.prefix, buckets[i].Key)
		all.Go(func() {
			if err := s.checkShard(ctx, c, []string{key}); err != nil {
				errs[i] = notSent(op, err)
				return
			}
			res := s.runScript(ctx, c, knownScript(), key, id)
			k, err := s.readKnown(&res)
			found[i], errs[i] = k, failure(op, err, []string{key})
		})
	}
	all.Wait()
	return found, firstError(errs)
}

func firstError(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) readKnown(res *rueidis.RedisResult) (k known, err error) {
	parts, err := res.ToArray()
	if err != nil {
		return k, err
	}
	if len(parts) != 3 {
		return k, errAnswer
	}
	time, err := parts[0].AsIntSlice()
	if err != nil || len(time) != 2 {
		return k, errAnswer
	}
	k.now = time[0]*1e6 + time[1]
	if s.clock != nil {
		k.now = s.clock()
	}
	if parts[1].IsNil() {
		return k, nil
	}
	st, err := header(&parts[1], 0)
	if err != nil {
		return k, err
	}
	k.limits = st.rec.Limits
	k.now = max(k.now, st.rec.Last)
	k.paused = st.rec.Pause != nil && st.rec.Pause.Until > k.now
	if parts[2].IsNil() {
		return k, nil
	}
	text, err := parts[2].ToString()
	if err != nil {
		return k, errAnswer
	}
	r := reader{buf: text}
	k.grant, k.content = store.Grant(r.id()), r.id()
	r.num() // when the units were taken
	r.num() // how long the answer is repeated
	k.end = r.num()
	k.lease = r.byte()%2 == 1
	if r.bad {
		return k, errDamaged
	}
	k.open = k.end > k.now
	return k, nil
}

// runScript runs one of the small scripts, which the server gets if it does not know it. Those that
// write do nothing else when they are run twice.
func (s *Store) runScript(ctx context.Context, c rueidis.Client, sc *script, key string,
	args ...string,
) rueidis.RedisResult {
	run := func() rueidis.RedisResult { return c.Do(ctx, s.invoke(c, sc, []string{key}, args)) }
	res := run()
	if !s.mayLoad(&res) {
		return res
	}
	load := c.Do(ctx, s.teach(c, sc).SetSlot(key))
	if load.Error() != nil {
		return load
	}
	if res = run(); !s.mayLoad(&res) {
		return res
	}
	for _, node := range c.Nodes() { // the slot is just being moved to another one
		_ = node.Do(ctx, s.teach(node, sc)).Error() // the call will say so
	}
	return run()
}
