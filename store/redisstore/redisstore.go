// Package redisstore keeps buckets in Redis (6.2 or newer) or Valkey, so that any number of
// processes share them: in one server, in one that Sentinels watch, or in a cluster.
//
// Every decision is made within one call of one script, which the server runs atomically: it reads
// the server's clock once, decides about all buckets of the take, and at the end writes at most one
// hash per bucket. A refusal writes nothing, except for the first one after a change of rate, or
// one that finds many ended holds or expired entries, and for the ticket of a take that may wait. A
// bucket's key expires by itself once nothing in it is used or held, and nobody waits.
//
// A call removes at most 1,000 expired entries of rolling limits; with the default precision there
// are fewer. A take that does not fit before more of them are removed needs several calls, between
// which the server answers others.
//
// # The line
//
// Each bucket keeps a line of the tickets of those who wait, in all processes ([store.Ticket]): a
// field of its hash. A take that is granted at once, in a bucket for which nobody waits, costs the
// server as much with a ticket as without. While somebody waits, every take of the bucket goes the
// long way, which costs ten times that, and with 128 tickets 33 times. Programs of a version
// without lines keep the field, and pass those who wait. If the server takes no writes, refusals
// leave no ticket. All who fit when units come free early are told, and nobody relies on that:
// those who wait ask again.
//
// # Clusters
//
// Each bucket is in a slot of its own, so a take of several buckets cannot be one call. It looks at
// all of them, reserves in one slot after the other, and gives back what it has reserved if a slot
// refuses. All or nothing is granted, as anywhere. It takes about one call per bucket one after the
// other, and two more. It is never granted ahead ([store.Take.Ahead]). If it waits it
// leaves its tickets by calls of their own. A process that dies in between leaves units that count
// as held for up to 5 seconds, and then as used.
//
// A prefix with braces, such as "{drawgate}", puts all buckets into one slot: takes are one call
// then, and one shard carries all load.
//
// The clocks of primaries may differ by a second. Each bucket is counted by the clock of its own
// shard, so no limit depends on it; but a take with an ID, whose parts arrive at several shards, is
// refused as too late if they differ by more than two ([store.SendLife]), and one that was delayed
// may be opened that much later. The log warns of more than a second.
//
// # Requests that go together
//
// A request that finds no call of this store on its way is a call of its own. Those that come while
// one is on its way gather, and go as one call when it has ended, as do several requests of one
// caller: the script reads and writes each bucket once, and decides in order. A call carries as
// many as keep the server busy for about a millisecond. Those who come while a call hangs, as in a
// fail-over, do not wait for it longer than 100 to 200 ms: then others follow, up to eight. Each
// caller keeps its deadline: one that leaves before its call is sent takes its requests out (the
// error matches [store.ErrNothingDone]), one that leaves later does not know what became of them.
// If one of the buckets is damaged, nothing is done, and the requests are sent one by one. Looks at
// buckets are always calls of their own. [Options.NoBatches] switches this off.
//
// # What is lost with the server
//
// Buckets are as durable as the server: what it forgets (no persistence, an append-only file synced
// every second, a fail-over to a replica that lags) may be admitted again, but no more than was
// lost. A process notices when data was lost while it runs, by a key with a random number, the
// mark, of which each shard of a cluster has one: it logs an error, and with [Options.RequireMark]
// the store, or the shard, is unavailable until [Store.Init]. A server that evicts keys grants
// quotas again: set maxmemory-policy to noeviction. The store warns if it is not.
//
// Each bucket has a history ([store.History]), which says what was written to it and is there: by
// it a process can charge again what was lost. package guard does that.
//
// # Unknown outcomes
//
// A call that changes anything is never sent twice, unless the server said that it did not run it:
// because it did not know the script, or because the slot is, or is being moved, elsewhere. If the
// connection was lost or the deadline passed after a take was sent, the error matches
// [store.ErrUnknownOutcome]: its units may be spent. So it is for all requests that went together;
// a guard counts their errors as one failure. A take with an ID may be sent again, because an open
// ID replays its answer; a plain take must not be. A settlement may be sent again as well: an ID
// that is no longer open is gone, and credits nothing.
//
// A take with an ID over several slots whose answer was lost may be open in some of them only. Sent
// again, it is refused with [store.ErrIDReused] then: cancel it.
//
// # Permissions
//
// A dedicated user needs, on the keys that start with the prefix: EVALSHA, SCRIPT LOAD, TIME,
// HSET, HGET, HMGET, HDEL and PEXPIRE, and INFO for the warnings above and to notice fail-overs;
// [Store.Reset] needs UNLINK for keys that hold something else, [Store.List] SCAN or HKEYS, and
// [Store.ReadDocuments] of all HGETALL. The first call and every [Store.Ping] check what a take
// needs, and an error names what is missing:
//
//	ACL SETUSER drawgate on >SECRET ~drawgate:* +@connection +info +script|load +evalsha +time +hset +hget +hmget +hdel +pexpire +unlink +scan
//
// It also needs +role where Sentinels name the server, and in a cluster also
//
//	+cluster|slots +cluster|shards +asking
//
// With +publish +subscribe +unsubscribe &drawgate:%line it tells those who wait in other processes
// at once when units come free early; without they look by themselves, after 250 ms and later.
//
// A user of the Sentinels needs there
//
//	+@connection +subscribe +unsubscribe +psubscribe +sentinel|sentinels +sentinel|get-master-addr-by-name &*
//
// # Servers
//
// The tests run on Redis 6.2 and 7.0 and on Valkey 9. The store calls its script with EVALSHA, or
// functions of the server: see [Functions].
package redisstore

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// Options holds the optional settings of a Store. The zero value is ready to use.
type Options struct {
	Prefix string // of every key; "" means "drawgate"; stores with different prefixes share nothing
	// receives warnings about server settings that endanger limits, and errors about lost data; nil
	// discards
	Logger *slog.Logger

	// RequireMark makes the store unavailable ([ErrLost]) while the server has no mark of it:
	// before [Store.Init], and after the server lost its data. Without it a missing mark is made,
	// and a process that had seen another one logs an error.
	RequireMark bool
	// Functions says whether functions of the server are called instead of a script. The parameter
	// functions of a URL precedes.
	Functions Functions
	// NoBatches makes each request a call of its own. Otherwise requests that come while a call is
	// on its way go together in the next one.
	NoBatches bool
	// Batched is called after each batch. It must be quick and must not call the store. nil: nobody
	// is told.
	Batched func(Batch)
	// Lost is called when this process notices that the server lost its data. It must be quick and
	// must not call the store. nil: only the log says so.
	Lost func(Loss)

	via func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) // for tests: dials
	// for tests: how often a connection asks its server which it is; 0 means once a minute
	asksAgain time.Duration
}

// Store keeps buckets in Redis. It is safe for concurrent use.
type Store struct {
	prefix string
	logger *slog.Logger
	script *script
	made   time.Time    // according to this process's clock
	clock  func() int64 // for tests: the time in Unix µs, instead of the server's
	link   link
	loader loader
	mark   marker        // of a server that is no cluster
	dials  atomic.Uint64 // connections that were made
	marked atomic.Bool   // this process has made a mark

	step    func(step string, group int) // for tests
	cluster bool                         // the buckets are spread over the shards of a cluster
	shards  shards
	gather  gatherer
	// of what comes free
	announced announcements
	asked     atomic.Pointer[asked]
	place     string // of the generation, in each call
	// how often a connection asks its server which it is
	asksAgain time.Duration

	requireMark bool
	functions   Functions
	lost        func(Loss)
	batched     func(Batch)

	offset atomic.Int64 // estimate of how many µs the server's clock is ahead of ours, used to choose calendar windows

	mu      sync.RWMutex
	closed  bool
	running sync.WaitGroup // running calls; only added to while mu is held and the store is open, or by one of them
	calls   atomic.Int64   // the same, as a number
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Resetter  = (*Store)(nil)
	_ store.Lister    = (*Store)(nil)
	_ store.Pinger    = (*Store)(nil)
	_ store.Historian = (*Store)(nil)
	_ store.Liner     = (*Store)(nil)
	_ store.Watcher   = (*Store)(nil)
)

// Open returns a store on the servers that a URL names. opts may be nil.
//
//	redis://user:password@host:port/db
//	redis+sentinel://user:password@host1:26379,host2:26379/MASTER/db
//	redis+cluster://user:password@host1:6379,host2:6379
//	unix:///path?db=n
//
// With TLS it is rediss, as in rediss+cluster://; valkey and valkeys mean the same. User and
// password are those of the servers. Sentinels of their own user need the parameters sentinel_user
// and sentinel_password.
//
// It does not connect, so that a process can start while the server is unavailable: then calls
// fail, and each tries again. Use [Store.Ping] to find out.
func Open(serverURL string, opts *Options) (*Store, error) {
	o, kind, err := parse(serverURL)
	if err != nil {
		return nil, err
	}
	s := newStore(opts)
	if f := functionsOf(serverURL); f != CallScript {
		s.functions = f
	}
	s.cluster = kind == cluster
	o.DisableRetry = true // even for reads: the caller's deadline leaves no time for a retry
	o.DisableCache = true
	if o.Dialer.Timeout == 0 {
		o.Dialer.Timeout = dialTimeout
	}
	switch kind {
	case single:
		o.ForceSingleClient = true
	case sentinel:
		o.Sentinel.Dialer = o.Dialer
		o.Sentinel.Dialer.Resolver = ofSentinels
		o.Sentinel.TopologyRefreshInterval = askEvery
	case cluster:
		o.ClusterOption.ShardsRefreshInterval = askEvery
		o.ClusterOption.MaxMovedRedirections = mostRedirections
	}
	if kind != single && o.ConnWriteTimeout == 0 {
		o.ConnWriteTimeout = silence
	}
	s.asksAgain = askAgain
	if opts != nil && opts.via != nil {
		o.DialCtxFn = opts.via
	}
	if opts != nil && opts.asksAgain != 0 {
		s.asksAgain = opts.asksAgain
	}
	s.impatient(&o)
	s.link.dial = func() (rueidis.Client, error) { return rueidis.NewClient(o) }
	s.link.owned = true
	return s, nil
}

// Callers wait no longer than their own deadlines.
var (
	dialTimeout = 2 * time.Second // bounds the time for a connection
	// silence is for how long a server of several may be silent before its connection is closed:
	// another one may have taken its place.
	silence = 3 * time.Second
)

const (
	askEvery         = 2 * time.Second // how often a Sentinel or a cluster is asked which servers there are
	mostRedirections = 5               // of one call, in a cluster
)

// New returns a store that uses the caller's client, which may be one of a cluster or of
// Sentinels. Close does not close it. It should be made with ClientOption.DisableRetry. What
// fail-overs lose is not noticed, because the client's connections do not ask servers which they
// are. opts may be nil.
func New(client rueidis.Client, opts *Options) *Store {
	s := newStore(opts)
	s.cluster = client.Mode() == rueidis.ClientModeCluster
	s.link.dial = func() (rueidis.Client, error) { return client, nil }
	return s
}

func newStore(opts *Options) *Store {
	s := &Store{
		made: time.Now(), place: newPlace(), prefix: "drawgate", script: production(),
		logger: slog.New(slog.DiscardHandler),
	}
	if opts != nil && opts.Prefix != "" {
		s.prefix = opts.Prefix
	}
	if opts != nil && opts.Logger != nil {
		s.logger = opts.Logger
	}
	if opts != nil {
		s.requireMark, s.lost, s.functions = opts.RequireMark, opts.Lost, opts.Functions
		s.gather.off, s.batched = opts.NoBatches, opts.Batched
	}
	s.mark.key = s.markKey()
	s.link.check = s.check
	return s
}

// begin counts a call as running, and returns the client.
func (s *Store) begin(ctx context.Context, op string) (rueidis.Client, error) {
	s.mu.RLock()
	if s.closed && ctx.Value(stays{}) == nil {
		s.mu.RUnlock()
		return nil, store.ErrClosed
	}
	s.running.Add(1)
	s.mu.RUnlock()
	s.calls.Add(1)
	c, err := s.link.client(ctx)
	switch {
	case err != nil:
	case s.cluster:
		s.refreshShards(c) //nolint:contextcheck // it is for all callers, not for this one
	default:
		err = s.checkMark(ctx, c, &s.mark)
	}
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.end()
		return nil, notSent(op, err)
	}
	return c, nil
}

// stays marks the context of a call that consists of several, and goes on if the store is closed
// between them.
type stays struct{}

// stay counts such a call as running. Otherwise Close would leave behind what it has reserved, and
// the caller would hear that nothing was done.
func (s *Store) stay(ctx context.Context) (_ context.Context, end func(), err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return nil, nil, store.ErrClosed
	}
	s.running.Add(1)
	return context.WithValue(ctx, stays{}, true), s.running.Done, nil
}

// end counts a call as done.
func (s *Store) end() {
	s.calls.Add(-1)
	s.running.Done()
}

// Close implements [store.Store]. Running calls finish first.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.announced.close()
	s.running.Wait()
	s.link.close()
	return nil
}

// check checks the servers before their first use.
func (s *Store) check(ctx context.Context, c rueidis.Client) error {
	if s.cluster {
		return s.checkCluster(ctx, c)
	}
	now, err := s.checkServer(ctx, c, s.probeKey(), &s.mark, s.logger)
	if err == nil && s.clock == nil {
		s.learn(now)
	}
	return err
}

// checkServer checks one server before its first use: it has the right version and settings, and
// the user the permissions. The server gets the script. It returns the server's time, in Unix µs.
func (s *Store) checkServer(ctx context.Context, c rueidis.Client, probe string, m *marker, log *slog.Logger,
) (now int64, err error) {
	warn, all := m.warnOnce(log), []string(nil)
	for _, r := range c.DoMulti(ctx, c.B().Info().Section("server").Build(), c.B().Info().Section("memory").Build(),
		c.B().Info().Section("persistence").Build(), c.B().Info().Section("replication").Build(),
		c.B().Info().Section("cluster").Build()) {
		text, err := r.ToString()
		if err != nil {
			if _, answered := rueidis.IsRedisErr(err); !answered {
				return 0, err
			}
			warn("redisstore: the server's settings cannot be read, nor which server it is: what a fail-over loses is not noticed", "err", err)
			continue
		}
		all = append(all, text)
	}
	if err := s.checkInfo(strings.Join(all, "\n"), warn); err != nil {
		return 0, err
	}
	denied, _, err := s.probe(ctx, c, probe)
	if denied != nil {
		return 0, denied
	}
	if err != nil {
		return 0, err
	}
	// A server that lost its data must not get the script: others may ask it before they notice.
	if err := s.readMark(ctx, c, m); err != nil {
		return 0, err
	}
	if s.functions != UseFunctions {
		if err := c.Do(ctx, s.teach(c, s.script)).Error(); err != nil {
			return 0, err
		}
	}
	t, err := c.Do(ctx, c.B().Time().Build()).AsIntSlice()
	if err != nil {
		return 0, err
	} else if len(t) != 2 {
		return 0, errAnswer
	}
	m.warnAgain()
	return t[0]*1e6 + t[1], nil
}

// errCluster is the error for a node of a cluster. A take of several buckets would fail there if
// they are in different slots.
var errCluster = fmt.Errorf("%w: the server is a node of a cluster: write redis+cluster:// instead of redis:// in front of its address, or rediss+cluster:// with TLS", ErrMisconfigured)

// errNoCluster is the error for a server that is none, if the URL says so.
var errNoCluster = fmt.Errorf("%w: the server is no node of a cluster: write redis:// instead of redis+cluster:// in front of its address, or rediss:// with TLS", ErrMisconfigured)

// errOld is the error for a server that is too old.
var errOld = errors.New("the server is older than Redis 6.2")

func (s *Store) checkInfo(text string, warn func(text string, args ...any)) error {
	info := infoFields(text)
	if v, ok := info["redis_version"]; ok && older(v, 6, 2) {
		return fmt.Errorf("%w: it is %s", errOld, v)
	}
	if v, ok := info["redis_version"]; ok && s.functions != CallScript && older(v, 7, 0) {
		return fmt.Errorf("%w: functions need Redis 7.0, and the server is %s: leave functions out of the URL", ErrMisconfigured, v)
	}
	switch enabled := info["cluster_enabled"]; {
	case enabled == "1" && !s.cluster:
		return errCluster
	case enabled == "0" && s.cluster:
		return errNoCluster
	}
	if policy := info["maxmemory_policy"]; policy != "" && policy != "noeviction" && info["maxmemory"] != "0" {
		warn("redisstore: the server may evict buckets, which grants their quotas again: set maxmemory-policy to noeviction",
			"maxmemory_policy", policy, "maxmemory", info["maxmemory"])
	}
	if info["aof_enabled"] == "0" {
		warn("redisstore: the server does not log its writes: a restart loses what was used since its last snapshot, "+
			"or all, and may grant it again: set appendonly to yes", "aof_enabled", "0")
	}
	if n := info["connected_slaves"]; n != "" && n != "0" && info["role"] == "master" &&
		info["min_slaves_good_slaves"] == "" {
		warn("redisstore: a fail-over may lose acknowledged writes, and what they took may be granted again: "+
			"set min-replicas-to-write to 1 and min-replicas-max-lag to 2", "replicas", n)
	}
	return nil
}

// older reports whether a version is before major.minor. It is false for a version that cannot be
// parsed.
func older(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
