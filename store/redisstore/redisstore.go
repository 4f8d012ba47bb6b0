// Package redisstore keeps buckets in one Redis (6.2 or newer) or Valkey server, so that any number
// of processes share them.
//
// Every decision is one call of one script, which the server carries out as a whole: it reads the
// server's clock once, decides about all buckets of the take, and writes at most one hash per
// bucket, last. A refusal writes nothing, but for the first one that shows another rate, or finds
// many holds ended. A bucket's key expires by itself once nothing in it is used or held.
//
// # What is lost with the server
//
// Buckets are as durable as the server: what it forgets (no persistence, an append-only file synced
// every second, a fail-over to a replica that lags) may be admitted again, at most what was lost. A
// server that evicts keys hands out fresh quotas: set maxmemory-policy to noeviction. The store
// warns if it is not.
//
// # Unknown outcomes
//
// No call that changes anything is ever sent twice, but for one that the server said it did not
// carry out because it did not know the script. Where the connection was lost or the deadline
// passed after a take was sent, the error matches [ErrUnknownOutcome]: its units may be spent. A
// take with an id may be sent again, since an open id replays its answer; a plain take must not be.
// A settlement may be sent again as well: an id that is not open any more is gone, and credits
// nothing.
//
// # Permissions
//
// A user of its own needs, on the keys that start with the prefix: EVALSHA, SCRIPT LOAD, TIME,
// HSET, HGET, HMGET, HDEL and PEXPIRE, and INFO for the warnings above; [Store.Reset] needs UNLINK,
// [Store.List] SCAN. What a take needs is tried at the first call and by every [Store.Ping], and an
// error names what is missing:
//
//	ACL SETUSER drawgate on >SECRET ~drawgate:* +@connection +info +script|load +evalsha +time +hset +hget +hmget +hdel +pexpire +unlink +scan
//
// # Servers
//
// The tests run on Redis 6.2 and 7.0 and on Valkey 9. The script goes by EVALSHA: there is no
// library of Redis Functions. A Redis Cluster is not supported yet: the buckets of one take must
// live on one server.
package redisstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate"
)

// Options holds what a Store can do without. The zero value is ready to use.
type Options struct {
	Prefix string       // of every key; "" means "drawgate"; stores with different prefixes share nothing
	Logger *slog.Logger // told of settings of the server that endanger limits; nil discards
}

// Store keeps buckets in Redis. It is safe for concurrent use.
type Store struct {
	prefix string
	logger *slog.Logger
	script *script
	made   time.Time    // by this process's clock
	clock  func() int64 // tests: the time in Unix µs, instead of the server's
	link   link
	loader loader
	offset atomic.Int64 // µs by which the server's clock is ahead of ours: a guess, to choose calendar windows by

	mu      sync.RWMutex
	closed  bool
	running sync.WaitGroup // calls under way; added to while mu is held and the store is open
	calls   atomic.Int64   // the same, as a number
}

var (
	_ drawgate.Store    = (*Store)(nil)
	_ drawgate.Resetter = (*Store)(nil)
	_ drawgate.Lister   = (*Store)(nil)
	_ drawgate.Pinger   = (*Store)(nil)
)

// Open returns a store on the server that url names: redis://user:password@host:port/db, or
// rediss:// for TLS, valkey://, valkeys://, or unix:///path?db=n. opts may be nil.
//
// It does not connect: a server that is away is an error of the calls, each of which tries again,
// so that a process can start without it. Use [Store.Ping] to find out.
func Open(url string, opts *Options) (*Store, error) {
	o, err := rueidis.ParseURL(url)
	if err != nil {
		// The text of the error may repeat the URL, password included.
		return nil, fmt.Errorf("%w: redisstore: the URL is not of the form redis://user:password@host:port/db", drawgate.ErrInvalid)
	}
	if o.Sentinel.MasterSet != "" || len(o.InitAddress) != 1 {
		return nil, fmt.Errorf("%w: redisstore: the URL names several servers; one standalone server is supported", drawgate.ErrInvalid)
	}
	s := newStore(opts)
	o.ForceSingleClient = true
	o.DisableRetry = true // even of reads: the caller's deadline is shorter than any retry is worth
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = dialTimeout
	}
	impatient(&o, &s.calls)
	s.link.dial = func() (rueidis.Client, error) { return rueidis.NewClient(o) }
	s.link.owned = true
	return s, nil
}

// dialTimeout bounds the time for a connection. Callers wait for it no longer than their own
// deadlines.
const dialTimeout = 2 * time.Second

// New returns a store that uses the caller's client, which Close leaves open. The client must be of
// a single server, and should be made with ClientOption.DisableRetry. opts may be nil.
func New(client rueidis.Client, opts *Options) *Store {
	s := newStore(opts)
	s.link.dial = func() (rueidis.Client, error) { return client, nil }
	return s
}

func newStore(opts *Options) *Store {
	s := &Store{made: time.Now(), prefix: "drawgate", script: &production, logger: slog.New(slog.DiscardHandler)}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	if opts != nil && opts.Logger != nil {
		s.logger = opts.Logger
	}
	s.link.check = s.check
	return s
}

// begin counts a call as under way, and returns the client.
func (s *Store) begin(ctx context.Context, op string) (rueidis.Client, error) {
	s.mu.RLock()
	if s.closed {
		s.mu.RUnlock()
		return nil, drawgate.ErrClosed
	}
	s.running.Add(1)
	s.mu.RUnlock()
	s.calls.Add(1)
	c, err := s.link.client(ctx)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.end()
		return nil, notSent(op, err)
	}
	return c, nil
}

// end counts a call as done.
func (s *Store) end() {
	s.calls.Add(-1)
	s.running.Done()
}

// Close implements [drawgate.Store]. Calls under way are finished.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
	s.link.close()
	return nil
}

// check looks at the server before its first use.
func (s *Store) check(ctx context.Context, c rueidis.Client) error {
	for _, r := range c.DoMulti(ctx, c.B().Info().Section("server").Build(), c.B().Info().Section("memory").Build(), c.B().Info().Section("replication").Build()) {
		text, err := r.ToString()
		if err != nil {
			if _, answered := rueidis.IsRedisErr(err); !answered {
				return err
			}
			s.logger.Warn("redisstore: the server's settings cannot be read", "err", err)
			continue
		}
		if err := s.checkInfo(text); err != nil {
			return err
		}
	}
	res := c.DoMulti(ctx, c.B().ScriptLoad().Script(s.script.body).Build(), c.B().Time().Build())
	if err := res[0].Error(); err != nil {
		return err
	}
	t, err := res[1].AsIntSlice()
	if err != nil {
		return err
	} else if len(t) != 2 {
		return errAnswer
	}
	if s.clock == nil {
		s.learn(t[0]*1e6 + t[1])
	}
	denied, _, err := s.probe(ctx, c)
	if denied != nil {
		return denied
	}
	return err
}

// errOld is why a server is not used.
var errOld = errors.New("the server is older than Redis 6.2")

func (s *Store) checkInfo(text string) error {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	if v, ok := info["redis_version"]; ok && older(v, 6, 2) {
		return fmt.Errorf("%w: it is %s", errOld, v)
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		s.logger.Warn("redisstore: the server may evict buckets, which hands out fresh quotas: set maxmemory-policy to noeviction",
			"maxmemory_policy", policy, "maxmemory", info["maxmemory"])
	}
	if n := info["connected_slaves"]; n != "" && n != "0" && info["role"] == "master" && info["min_slaves_good_slaves"] == "" {
		s.logger.Warn("redisstore: a fail-over may forget what the server has acknowledged, which may be admitted again: "+
			"set min-replicas-to-write to 1 and min-replicas-max-lag to 2", "replicas", n)
	}
	return nil
}

// older reports whether a version is before major.minor. One that cannot be read is not.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
