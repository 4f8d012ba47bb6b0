package redisstore

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"runtime"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/storekey"
	"github.com/drawgate/drawgate/store"
)

// NewWithClock returns a store whose script takes the time in Unix µs from clock instead of the
// server's, and believes the generation that a call names. The clock may stand still, as no
// server's does: several writes of a record may have one instant.
func NewWithClock(client rueidis.Client, opts *Options, clock func() int64) *Store {
	s := New(client, opts)
	const time, raw = "local time = call('TIME')\n", "local raw = time[1] * 1000000 + time[2]\n"
	if !strings.Contains(body(), time+raw) {
		panic("the script reads the clock in another way")
	}
	text := strings.Replace(body(), time+raw, "local raw = tonumber(ARGV[#ARGV])\n", 1)
	if !strings.Contains(text, step) || !strings.Contains(text, unconfirmed) {
		panic("the script makes instants increase, or confirms generations, in another way")
	}
	text = strings.Replace(text, step, "local STEP = 0\n", 1)
	sc := newScript(strings.Replace(text, unconfirmed, "local confirmed = true\n", 1))
	s.script, s.clock = &sc, clock
	return s
}

const (
	step        = "local STEP = 1\n"
	unconfirmed = "local confirmed = false\n"
)

// Strictly makes the instants of a record's writes increase although the clock stands still, as the
// script does that programs call, and returns the store.
func (s *Store) Strictly() *Store {
	if !strings.Contains(body(), step) {
		panic("the script makes instants increase in another way")
	}
	sc := newScript(strings.Replace(s.script.body, "local STEP = 0\n", step, 1))
	s.script = &sc
	return s
}

// AsBefore makes the store call the script of an earlier version, whose arguments had no
// generation, and in the flags of a limit no priority, and returns the store.
func (s *Store) AsBefore(text string) *Store {
	const time, raw = "local time = call('TIME')\n", "local raw = time[1] * 1000000 + time[2]\n"
	text = strings.Replace(text, time+raw, "local raw = tonumber(ARGV[#ARGV])\n", 1)
	text = strings.ReplaceAll(text, "if fl == 0 then", "if fl % 2 == 0 then")
	sc := newScript("table.remove(ARGV, 3)\n" + text)
	s.script = &sc
	return s
}

// SetGeneration sets the generation that all calls name whose connections are the caller's.
func (s *Store) SetGeneration(generation uint64) {
	s.asked.Store(nil)
	s.place = string(binary.BigEndian.AppendUint64([]byte(s.place[:placeMarker]), generation))
}

// ScriptSHA is the hash of the script that decides.
func ScriptSHA() string { return production().sha }

// RemoveAtMost makes the store remove no more than n expired entries in a call of the script, and
// returns the store.
func (s *Store) RemoveAtMost(n int) *Store {
	const most = "local MOST = 1000\n"
	if !strings.Contains(s.script.body, most) {
		panic("the script bounds the entries that it removes in another way")
	}
	sc := newScript(strings.Replace(s.script.body, most, fmt.Sprintf("local MOST = %d\n", n), 1))
	s.script = &sc
	return s
}

// AlwaysInBatches makes the store send each request that may be in a batch in one, and returns the
// store.
func (s *Store) AlwaysInBatches() *Store {
	s.gather.always = true
	return s
}

// Gather makes the requests that come now gather, as if a call were in flight, until send is
// called.
func (s *Store) Gather() (send func()) {
	for s.InFlight() > 0 { // the last batch is answered a little before its call ends
		runtime.Gosched()
	}
	s.Patiently()
	t, _ := s.join(nil, "test", 0, nil)
	return func() {
		s.mu.RLock()
		s.running.Add(1)
		s.mu.RUnlock()
		c, err := s.link.client(context.Background())
		if err != nil {
			panic(err)
		}
		s.leave(c, t)
		s.running.Done()
	}
}

// Patiently makes requests wait for a call that is in flight however long it takes, and returns the
// store.
func (s *Store) Patiently() *Store {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	s.gather.unhurried = true
	return s
}

// MostInFlight is how many calls of a lane may be in flight, with those that hang.
const MostInFlight = mostHang + mostInFlight

// InFlight returns how many calls of lanes are in flight.
func (s *Store) InFlight() (n int) {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	for _, l := range s.gather.lanes {
		n += l.calls + l.hang
	}
	return n
}

// Gathered returns how many callers wait for their batch.
func (s *Store) Gathered() (n int) {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	for _, l := range s.gather.lanes {
		for _, j := range l.queue {
			if j.state.Load() == gathering {
				n++
			}
		}
	}
	return n
}

// Gathering returns a function that returns how many of those who wait for their batch now are in
// none yet. It must not be called any more once one of them was answered. (Gathered is 0 already
// while a batch is made of them.)
func (s *Store) Gathering() (still func() int) {
	s.gather.mu.Lock()
	defer s.gather.mu.Unlock()
	var jobs []*job
	for _, l := range s.gather.lanes {
		jobs = append(jobs, l.queue...)
	}
	return func() (n int) {
		for _, j := range jobs {
			if j.state.Load() == gathering {
				n++
			}
		}
		return n
	}
}

// KeyOf returns the server's key of a bucket.
func KeyOf(prefix string, k store.Key) string {
	key, _ := storekey.Format(prefix, k)
	return key
}

// Line returns the line of a bucket.
func (s *Store) Line(ctx context.Context, k store.Key) (*record.Line, error) {
	c, err := s.link.client(ctx)
	if err != nil {
		return nil, err
	}
	text, err := c.Do(ctx, c.B().Hget().Key(KeyOf(s.prefix, k)).Field("l").Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return nil, err
	}
	return readLine(text)
}

// Learn tells the store what its server's clock shows.
func (s *Store) Learn() { s.learn(s.clock()) }

// NewClient returns the client by which a store would use a URL's servers.
func NewClient(url string) (rueidis.Client, error) {
	s, err := Open(url, nil)
	if err != nil {
		return nil, err
	}
	return s.link.dial()
}

// SlotOf returns the slot of a key.
func SlotOf(key string) int { return int(slotOf(key)) }

// Via makes a store dial other addresses, which of returns, instead of those of the servers.
func (o *Options) Via(of func(addr string) string) *Options {
	o.via = func(ctx context.Context, addr string, d *net.Dialer, t *tls.Config) (net.Conn, error) {
		return dialTCP(ctx, of(addr), d, t)
	}
	return o
}

// OnStep makes the store call f before each step of a take over several slots.
func (s *Store) OnStep(f func(step string, group int)) { s.step = f }

// LeaseHold is how long the leases of a take over several slots are held.
const LeaseHold = leaseHold

// AskingAgain returns options of a store whose connections ask again so often which server they
// have.
func AskingAgain(every time.Duration) *Options { return &Options{asksAgain: every} }

// BePatient makes all stores wait for their servers for longer than a slow machine lets them wait.
// It must be called before there are any.
func BePatient() {
	for _, d := range []*time.Duration{&checkTimeout, &loadTimeout, &markTimeout, &shardsTimeout, &undoTime} {
		*d = time.Minute
	}
	silence = 30 * time.Second
	dialTimeout, askTimeout = 10*time.Second, 10*time.Second // tests wait for a Sentinel that hangs
}
