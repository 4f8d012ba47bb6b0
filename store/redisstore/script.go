package redisstore

import (
	"context"
	"crypto/sha1" //nolint:gosec // the server names scripts by this hash
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

var production = inLibrary("decide", body)

// script is one script. function is its name in the library, if the server has that instead.
type script struct{ body, sha, function string }

func newScript(body string) script {
	sum := sha1.Sum([]byte(body)) //nolint:gosec // see above
	return script{body: body, sha: hex.EncodeToString(sum[:])}
}

// call is one call of the script.
type call struct{ keys, args []string }

// mostLoads is how often one call may find that the server does not know the script: somebody may
// flush its scripts again and again.
const mostLoads = 3

// run calls the script for requests, in order, and returns its answers: in room, which has one
// place, if that is enough. Only calls for which the server did not know the script are sent again.
func (s *Store) run(ctx context.Context, c rueidis.Client, reqs []*request,
	room []rueidis.RedisResult,
) []rueidis.RedisResult {
	if len(reqs) > 1 {
		return s.runAll(ctx, c, reqs)
	}
	for try := 0; ; try++ {
		loads := s.loader.done.Load()
		room[0] = c.Do(ctx, s.command(c, &reqs[0].call))
		if errors.Is(room[0].NonRedisError(), errReplicaThen) { // once more, on a new connection
			room[0] = c.Do(ctx, s.command(c, &reqs[0].call))
		}
		if try == mostLoads || !s.mayLoad(&room[0]) || !s.load(ctx, c, loads, &room[0]) {
			return room
		}
	}
}

// runAll is run for several requests.
func (s *Store) runAll(ctx context.Context, c rueidis.Client, reqs []*request) []rueidis.RedisResult {
	cmds := make(rueidis.Commands, len(reqs))
	for i, r := range reqs {
		cmds[i] = s.command(c, &r.call)
	}
	loads := s.loader.done.Load()
	res := c.DoMulti(ctx, cmds...)
	if s.cluster && errors.Is(res[0].NonRedisError(), rueidis.ErrNoSlot) {
		for i, r := range reqs { // nothing was sent, because one of the slots has no node
			res[i] = c.Do(ctx, s.command(c, &r.call))
		}
	}
	for range mostLoads {
		var again []int
		missing := -1
		for i := range res {
			if s.mayLoad(&res[i]) {
				missing = i
			} else if !errors.Is(res[i].NonRedisError(), errReplicaThen) {
				continue
			}
			again = append(again, i)
		}
		if len(again) == 0 || missing >= 0 && !s.load(ctx, c, loads, &res[missing]) {
			return res
		}
		cmds = cmds[:0]
		for _, i := range again {
			cmds = append(cmds, s.command(c, &reqs[i].call))
		}
		loads = s.loader.done.Load()
		for k, r := range c.DoMulti(ctx, cmds...) {
			res[again[k]] = r
		}
	}
	return res
}

func (s *Store) command(c rueidis.Client, call *call) rueidis.Completed {
	return s.invoke(c, s.script, call.keys, call.args)
}

func unknownScript(r *rueidis.RedisResult) bool {
	err := r.Error()
	if err == nil {
		return false
	}
	re, ok := rueidis.IsRedisErr(err)
	return ok && (re.IsNoScript() || strings.Contains(re.Error(), noFunction))
}

// loader sends the script to the server, once for all calls that failed because it was missing. If
// each of thousands of calls per second did so itself, the server would be busy for longer than
// their deadlines.
type loader struct {
	done atomic.Uint64 // how often the script was sent

	mu  sync.Mutex
	way *loading // guarded by mu: the load in progress, nil if none
}

// loading is a load of the script in progress. res is set before done is closed.
type loading struct {
	done chan struct{}
	res  rueidis.RedisResult
	err  error // the mark is missing, or cannot be read: the script was not sent
}

// loadTimeout bounds the time for loading the script. Callers wait no longer than their own
// deadlines.
var loadTimeout = 2 * time.Second

// load waits until the script has been loaded more often than loads, the count when the failed call
// was sent. If loading fails with an answer, that answer replaces the call's.
func (s *Store) load(ctx context.Context, c rueidis.Client, loads uint64, res *rueidis.RedisResult) bool {
	l := s.loading(ctx, c, loads)
	if l == nil {
		return true
	}
	select {
	case <-l.done:
	case <-ctx.Done():
		return false
	}
	if l.err != nil {
		return false
	}
	if err := l.res.Error(); err != nil {
		if _, ok := rueidis.IsRedisErr(err); ok {
			*res = l.res
		}
		return false
	}
	return true
}

// loading returns the load in progress, or starts one. It returns nil if the script has been loaded
// meanwhile.
func (s *Store) loading(ctx context.Context, c rueidis.Client, loads uint64) *loading {
	ld := &s.loader
	ld.mu.Lock()
	defer ld.mu.Unlock()
	if ld.way != nil {
		return ld.way
	}
	if ld.done.Load() != loads {
		return nil
	}
	l := &loading{done: make(chan struct{})}
	ld.way = l
	s.running.Go(func() { // ends by its timeout. The call still counts as running: Close waits for both
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout)
		defer cancel()
		if s.cluster {
			l.err = s.loadEverywhere(ctx, c)
		} else if l.err = s.readMark(ctx, c, &s.mark); l.err == nil { // it may have been restarted, and empty
			l.res = c.Do(ctx, s.teach(c, s.script))
		}
		ld.mu.Lock()
		defer ld.mu.Unlock()
		if l.err == nil && l.res.Error() == nil {
			ld.done.Add(1)
		}
		ld.way = nil
		close(l.done)
	})
	return l
}
