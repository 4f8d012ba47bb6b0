package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// shards is what a process knows of a cluster: which primary has which slots, to check each
// primary, and to read the mark of the shard that a call is for. The client finds the node of each
// call by itself, and follows redirections.
type shards struct {
	now  atomic.Pointer[layout]
	next atomic.Int64 // when it is read next, in Unix ns

	mu      sync.Mutex
	keys    []string           // guarded by mu: those of all marks, nil before they are needed
	marks   map[string]*marker // guarded by mu: by their keys
	checked map[string]bool    // guarded by mu: primaries that were checked, by their addresses
	warned  map[string]bool    // guarded by mu: those of which the log says that they cannot be used
}

// layout is which primary has which slots.
type layout struct {
	primaries []primary
	of        [slots]int16 // the position of a slot's primary, or -1
}

// primary is the primary of a shard.
type primary struct {
	addr string
	mark *marker // nil: it has so few slots that none of them has a mark
	key  string  // one for probes, in one of its slots; "" if there is none
}

const (
	shardsEvery = 5 * time.Second // how often the shards are looked at
	// mostApart is how far the clocks of primaries may be apart before the log says so: half of the
	// time in which a take with an ID must arrive, and of what a refund may be late.
	mostApart = time.Second
)

// shardsTimeout bounds looking at the shards.
var shardsTimeout = 2 * time.Second

// allMarks returns the keys of all marks of the store.
func (s *Store) allMarks() []string {
	if !s.cluster {
		return []string{s.markKey()}
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	if s.shards.keys == nil {
		s.shards.keys = markKeys(s.prefix)
		s.shards.marks, s.shards.checked, s.shards.warned = map[string]*marker{}, map[string]bool{}, map[string]bool{}
	}
	return s.shards.keys
}

// marker returns what this process knows of a mark.
func (s *shards) marker(key string) *marker {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.marks[key]
	if m == nil {
		m = &marker{key: key}
		s.marks[key] = m
	}
	return m
}

// readLayout asks the cluster which primary has which slots.
func (s *Store) readLayout(ctx context.Context, c rueidis.Client) (*layout, map[string]rueidis.Client, error) {
	nodes := c.Nodes()
	err := rueidis.ErrNoAddr
	for addr, node := range nodes {
		var l *layout
		if l, err = s.askLayout(ctx, node, addr); err == nil {
			s.shards.now.Store(l)
			return l, nodes, nil
		}
		if ctx.Err() != nil {
			break
		}
	}
	return nil, nil, err
}

// askLayout asks one node. Some that are no longer in the cluster know nothing of it.
func (s *Store) askLayout(ctx context.Context, node rueidis.Client, addr string) (*layout, error) {
	ctx, cancel := context.WithTimeout(ctx, shardsTimeout/2)
	defer cancel()
	ranges, err := node.Do(ctx, node.B().ClusterSlots().Build()).ToArray()
	if err != nil {
		return nil, err
	}
	l, at := &layout{}, map[string]int16{}
	for i := range l.of {
		l.of[i] = -1
	}
	for i := range ranges {
		r, err := ranges[i].ToArray()
		if err != nil || len(r) < 3 {
			return nil, errAnswer
		}
		first, err1 := r[0].AsInt64()
		last, err2 := r[1].AsInt64()
		node, err3 := r[2].ToArray()
		if err := errors.Join(err1, err2, err3); err != nil || len(node) < 2 || first < 0 || last >= slots {
			return nil, errAnswer
		}
		host, _ := node[0].ToString() // empty: that of the node which answers
		if host == "" {
			host, _, _ = net.SplitHostPort(addr)
		}
		port, err := node[1].AsInt64()
		if err != nil {
			return nil, errAnswer
		}
		name := net.JoinHostPort(host, strconv.FormatInt(port, 10))
		k, known := at[name]
		if !known {
			k = int16(len(l.primaries)) // at most one per slot
			at[name] = k
			l.primaries = append(l.primaries, primary{addr: name})
		}
		for slot := first; slot <= last; slot++ {
			l.of[slot] = k
		}
	}
	if len(l.primaries) == 0 {
		return nil, errors.New("the node knows no slots of the cluster")
	}
	for _, key := range s.allMarks() {
		if k := l.of[slotOf(key)]; k >= 0 && l.primaries[k].mark == nil {
			l.primaries[k].mark, l.primaries[k].key = s.shards.marker(key), strings.Replace(key, ":%mark", ":%probe", 1)
		}
	}
	return l, nil
}

// checkCluster checks a cluster before its first use. It works if one of its shards does.
func (s *Store) checkCluster(ctx context.Context, c rueidis.Client) error {
	l, nodes, err := s.readLayout(ctx, c)
	if err != nil {
		if re, ok := rueidis.IsRedisErr(err); ok && strings.Contains(re.Error(), "cluster support disabled") {
			return errNoCluster
		}
		return err
	}
	s.shards.next.Store(time.Now().Add(shardsEvery).UnixNano())
	return s.checkPrimaries(ctx, l, nodes)
}

// checkPrimaries checks the primaries that were not checked yet. The error is nil if one of all
// works.
func (s *Store) checkPrimaries(ctx context.Context, l *layout, nodes map[string]rueidis.Client) error {
	errs, times := make([]error, len(l.primaries)), make([]int64, len(l.primaries))
	var all sync.WaitGroup
	for i := range l.primaries {
		p, node := &l.primaries[i], nodes[l.primaries[i].addr]
		s.shards.mu.Lock()
		done := s.shards.checked[p.addr]
		s.shards.mu.Unlock()
		if done || p.key == "" {
			continue
		}
		if node == nil {
			errs[i] = fmt.Errorf("%w: %s", rueidis.ErrNoAddr, p.addr)
			continue
		}
		all.Go(func() {
			start := s.own()
			now, err := s.checkServer(ctx, node, p.key, p.mark, s.logger.With("server", p.addr))
			if errs[i] = err; err != nil {
				return
			}
			times[i] = now - (start+s.own())/2
			s.shards.mu.Lock()
			s.shards.checked[p.addr] = true
			delete(s.shards.warned, p.addr)
			s.shards.mu.Unlock()
		})
	}
	all.Wait()
	s.compareClocks(times, errs)
	if !slices.Contains(errs, nil) {
		return cmp.Or(errs...)
	}
	s.shards.mu.Lock()
	defer s.shards.mu.Unlock()
	for i, err := range errs {
		if addr := l.primaries[i].addr; err != nil && !s.shards.warned[addr] {
			s.shards.warned[addr] = true
			s.logger.Warn("redisstore: a shard of the cluster cannot be used", "server", addr, "err", err)
		}
	}
	return nil
}

// compareClocks warns of clocks that differ by more than is allowed for. times is by how much each
// is ahead of this process, roughly; 0 is unknown.
func (s *Store) compareClocks(times []int64, errs []error) {
	if s.clock != nil {
		return
	}
	var known []int64
	for i, t := range times {
		if t != 0 && errs[i] == nil {
			known = append(known, t)
		}
	}
	if len(known) == 0 {
		return
	}
	s.offset.Store(slices.Max(known))
	if apart := slices.Max(known) - slices.Min(known); apart > mostApart.Microseconds() {
		s.logger.Warn("redisstore: the clocks of the cluster's servers differ by more than a second: takes with an id over "+
			"several of them may be refused as too late; set them by NTP", "apart", time.Duration(apart)*time.Microsecond)
	}
}

// refreshShards looks at the shards again if it is time to. The caller must be a running call.
func (s *Store) refreshShards(c rueidis.Client) {
	now := time.Now().UnixNano()
	next := s.shards.next.Load()
	if now < next || !s.shards.next.CompareAndSwap(next, now+int64(shardsEvery)) {
		return
	}
	s.running.Go(func() { // ends by its timeout; Close waits for it
		ctx, cancel := context.WithTimeout(context.Background(), shardsTimeout)
		defer cancel()
		if l, nodes, err := s.readLayout(ctx, c); err == nil {
			_ = s.checkPrimaries(ctx, l, nodes)
		}
	})
}

// checkShard checks the mark of the shard that a call with these keys is for.
func (s *Store) checkShard(ctx context.Context, c rueidis.Client, keys []string) error {
	if !oneSlot(keys) {
		return fmt.Errorf("%w: the keys of one call are in several slots", errDisagree)
	}
	l := s.shards.now.Load()
	if l == nil {
		return nil
	}
	if k := l.of[slotOf(keys[0])]; k >= 0 && l.primaries[k].mark != nil {
		return s.checkMark(ctx, c, l.primaries[k].mark)
	}
	return nil
}

// primaries returns the primaries of the cluster.
func (s *Store) primaries(ctx context.Context, c rueidis.Client) ([]rueidis.Client, error) {
	l, nodes, err := s.readLayout(ctx, c)
	if err != nil {
		return nil, err
	}
	all := make([]rueidis.Client, len(l.primaries))
	for i, p := range l.primaries {
		if all[i] = nodes[p.addr]; all[i] == nil {
			return nil, fmt.Errorf("%w: %s", rueidis.ErrNoAddr, p.addr)
		}
	}
	return all, nil
}

// pingCluster pings every shard.
func (s *Store) pingCluster(ctx context.Context, c rueidis.Client) error {
	l, _, err := s.readLayout(ctx, c)
	if err != nil {
		return failure("ping", err, nil)
	}
	errs := make([]error, len(l.primaries))
	var all sync.WaitGroup
	for i := range l.primaries {
		if p := &l.primaries[i]; p.key != "" {
			all.Go(func() { errs[i] = s.pingServer(ctx, c, p.key, p.mark) })
		}
	}
	all.Wait()
	return cmp.Or(errs...)
}

// loadEverywhere sends the script to every primary, also to one that has no slots yet but is being
// given one, unless it lost its data. The error is nil if one got it.
func (s *Store) loadEverywhere(ctx context.Context, c rueidis.Client) error {
	l, nodes, err := s.readLayout(ctx, c)
	if err != nil {
		return err
	}
	errs := make(chan error, len(nodes))
	for addr, node := range nodes {
		go func() { errs <- s.loadOn(ctx, node, l, addr) }() // ends by ctx; it is waited for below
	}
	err = nil
	loaded := false
	for range nodes {
		e := <-errs
		loaded = loaded || e == nil
		if !errors.Is(e, errReplica) {
			err = cmp.Or(err, e)
		}
	}
	if loaded {
		return nil
	}
	return err
}

// errReplica says that a node is no primary.
var errReplica = errors.New("it is a replica")

func (s *Store) loadOn(ctx context.Context, node rueidis.Client, l *layout, addr string) error {
	if i := slices.IndexFunc(l.primaries, func(p primary) bool { return p.addr == addr }); i >= 0 {
		if m := l.primaries[i].mark; m != nil {
			if err := s.readMark(ctx, node, m); err != nil {
				return err
			}
		}
	} else {
		text, err := node.Do(ctx, node.B().Info().Section("replication").Build()).ToString()
		if err != nil {
			return err
		}
		if !strings.Contains(text, "role:master") {
			return errReplica
		}
	}
	return node.Do(ctx, s.teach(node, s.script)).Error()
}

// isMoving reports whether a call was not carried out because its slot is just being moved: it can
// be sent again soon.
func isMoving(err error) bool {
	re, ok := rueidis.IsRedisErr(err)
	return ok && re.IsTryAgain()
}

// soon pauses before that. It reports whether the caller is still there.
func (s *Store) soon(ctx context.Context) bool {
	s.reached("wait", 0)
	return pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)) //nolint:gosec // so that callers do not come together
}

// pause reports whether the time has passed before the caller left.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
