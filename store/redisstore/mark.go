package redisstore

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// A server that lost its data answers like one that nobody has used: every quota would be granted
// again without anybody noticing. So there is a key with a random number, the mark, which processes
// remember. It is read at the first connection, after each new connection, before the script is
// sent again to a server that does not know it (a server that was restarted knows no scripts, so
// nothing is taken from it before), by each ping, and otherwise once a second while the store is
// used.
//
// In a cluster each shard has a mark of its own, because each can lose its data by itself. There is
// one in each of 256 groups of slots, so that a shard has one wherever its slots came from: a slot
// is moved with its mark. That of a shard is the first one in its slots.

//go:embed mark.lua
var markBody string

var markScript = inLibrary("mark", func() string { return markBody })

// markKey is the key of the mark of a server that is no cluster.
func (s *Store) markKey() string { return s.prefix + ":%mark" }

// ErrLost means that the server lost its data: the mark is missing that [Options.RequireMark] asks
// for. The store is unavailable until [Store.Init] makes a mark.
var ErrLost = errors.New("the server has no mark of this store, so it lost its data or was never used: every quota would be granted again; " +
	"restore the data, or accept that and run drawgate store init")

// Loss describes a loss of data that a process noticed.
type Loss struct {
	At      time.Time
	Refused bool // the store is unavailable until it is initialized: [Options.RequireMark]
}

// markEvery is how often the mark is read without a reason.
const markEvery = time.Second

// markTimeout bounds one reading of the mark. Callers wait no longer than their own deadlines.
var markTimeout = 500 * time.Millisecond

// marker is what a process knows of a mark.
type marker struct {
	key    string
	seen   atomic.Uint64 // connections that had been made when the mark was last read
	next   atomic.Int64  // when it is read next, in Unix ns
	absent atomic.Bool   // it is required and was missing

	mu      sync.Mutex
	attempt *attempt // guarded by mu: in progress, nil if none
	id      string   // guarded by mu: the mark that was seen last, "" if none was
	gone    bool     // guarded by mu: the loss was reported, and no mark has been seen since
	warned  []string // guarded by mu: what the log has of a server that could not be used yet
}

// warnOnce returns a func that logs a warning unless it was logged since warnAgain was called.
func (m *marker) warnOnce(log *slog.Logger) func(text string, args ...any) {
	return func(text string, args ...any) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Contains(m.warned, text) {
			m.warned = append(m.warned, text)
			log.Warn(text, args...)
		}
	}
}

// warnAgain lets every warning be logged again: the next check is of another server.
func (m *marker) warnAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warned = nil
}

// checkMark reads a mark if there is reason to. It waits for the answer only if the server may have
// lost its data since the mark was read.
func (s *Store) checkMark(ctx context.Context, c rueidis.Client, m *marker) error {
	if m.absent.Load() || m.seen.Load() != s.dials.Load() {
		return s.waitForMark(ctx, c, m)
	}
	if now := time.Now().UnixNano(); now >= m.next.Load() {
		m.next.Store(now + int64(markEvery))
		s.tryMark(c, m) //nolint:contextcheck // it is for all callers, not for this one
	}
	return nil
}

// waitForMark reads the mark, together with all callers that want to know it.
func (s *Store) waitForMark(ctx context.Context, c rueidis.Client, m *marker) error {
	a := s.tryMark(c, m) //nolint:contextcheck // as above
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tryMark returns the reading of the mark that is in progress, and starts one if there is none. The
// caller must be a running call.
func (s *Store) tryMark(c rueidis.Client, m *marker) *attempt {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.attempt != nil {
		return m.attempt
	}
	a := &attempt{done: make(chan struct{})}
	m.attempt = a
	s.running.Go(func() { // ends by its timeout; Close waits for it
		ctx, cancel := context.WithTimeout(context.Background(), markTimeout)
		defer cancel()
		a.err = s.readMark(ctx, c, m)
		m.mu.Lock()
		m.attempt = nil
		m.mu.Unlock()
		close(a.done)
	})
	return a
}

// readMark reads the mark, and makes it if it may be made.
func (s *Store) readMark(ctx context.Context, c rueidis.Client, m *marker) error {
	dials := s.dials.Load()
	fresh := ""
	if !s.requireMark {
		fresh = rand.Text()
	}
	id, err := s.runMark(ctx, c, m.key, fresh)
	if _, answered := rueidis.IsRedisErr(err); answered && !s.requireMark {
		err = nil // a take would say the same, and better
	} else if err == nil {
		err = s.sawMark(m, id, id != "" && id == fresh)
	}
	if err == nil {
		m.seen.Store(dials)
		m.next.Store(time.Now().UnixNano() + int64(markEvery))
	}
	return err
}

// runMark returns the mark, or "" if there is none. fresh is the mark that is made then; if it is
// empty, none is made.
func (s *Store) runMark(ctx context.Context, c rueidis.Client, key, fresh string) (string, error) {
	id, err := c.Do(ctx, c.B().Hget().Key(key).Field("id").Build()).ToString()
	if !rueidis.IsRedisNil(err) {
		return id, err
	}
	if fresh == "" {
		return "", nil
	}
	res := s.runScript(ctx, c, markScript(), key, fresh)
	return res.ToString()
}

// sawMark compares a mark with the one that was seen before, and reports a loss. id is "" if there
// is none; made says that this process has just made it.
func (s *Store) sawMark(m *marker, id string, made bool) error {
	m.mu.Lock()
	was, reported := m.id, m.gone
	lost := was != "" && id != was && !reported
	m.gone = id == "" && (reported || was != "")
	if id != "" {
		m.id = id
	}
	m.mu.Unlock()
	if made {
		s.marked.Store(true)
		s.logger.Info("redisstore: the server had no mark of this store and now has one: nothing is used yet, as far as it knows",
			"mark", m.key)
	}
	m.absent.Store(id == "" && s.requireMark)
	if lost {
		s.logger.Error("redisstore: the server lost its data: its mark is missing or another one, so what was used before may be granted again",
			"event", "store_lost", "mark", m.key, "mark_made_again", made, "unavailable", id == "" && s.requireMark)
		if s.lost != nil {
			s.lost(Loss{At: time.Now(), Refused: id == "" && s.requireMark})
		}
	}
	if id == "" && s.requireMark {
		return ErrLost
	}
	return nil
}

// Init makes the mark of a store, unless there is one: in a cluster those of all slots. made
// reports whether it made any. A store with
// [Options.RequireMark] is unavailable until somebody has done so, and again after the server lost
// its data.
func (s *Store) Init(ctx context.Context) (made bool, err error) {
	if s.requireMark {
		return false, fmt.Errorf("%w: redisstore: Init is for a store without RequireMark", store.ErrInvalid)
	}
	c, err := s.begin(ctx, "init")
	if err != nil {
		return false, err
	}
	defer s.end()
	for _, key := range s.allMarks() {
		fresh := rand.Text()
		id, err := s.runMark(ctx, c, key, fresh)
		if err != nil {
			return made, failure("init", err, []string{key})
		}
		made = made || id == fresh
	}
	return made || s.marked.Load(), nil
}
