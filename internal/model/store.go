package model

import (
	"context"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// Store is a store.Store made of ledgers.
type Store struct {
	now   func() int64 // Unix µs
	exact bool

	mu      sync.Mutex
	ledgers map[store.Key]*Ledger
	closed  bool
}

var (
	_ store.Store    = (*Store)(nil)
	_ store.Resetter = (*Store)(nil)
)

// New returns an empty store with a clock, in Unix microseconds. exact says that a rolling limit
// without a precision is exact.
func New(now func() int64, exact bool) *Store {
	return &Store{now: now, exact: exact, ledgers: map[store.Key]*Ledger{}}
}

// usable returns why a call cannot be carried out.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return store.ErrClosed
	case ctx.Err() != nil:
		return &store.Error{Store: "model", Op: "begin", Err: ctx.Err()}
	}
	return nil
}

func (s *Store) asks(buckets []store.BucketCost) []Ask {
	asks := make([]Ask, len(buckets))
	for i, b := range buckets {
		l := s.ledgers[b.Key]
		if l == nil {
			l = &Ledger{}
			s.ledgers[b.Key] = l
		}
		asks[i] = Ask{Ledger: l, Specs: store.Internal.Specs(b.Plan, s.exact), N: record.Amounts(b.N)}
	}
	return asks
}

// Take implements store.Store.
func (s *Store) Take(ctx context.Context, batch []store.Take, out []store.Verdict) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	for i := range batch {
		t := &batch[i]
		if err := t.Check(); err != nil {
			out[i] = store.Verdict{Fail: err}
			continue
		}
		rt := record.Take{
			ID: t.ID, Grant: uint64(t.Grant), Hold: t.Hold.Microseconds(), Ahead: t.Ahead.Microseconds(),
			Lease: t.Lease,
			Given: t.Given, Priority: t.Priority,
		}
		if t.ID != "" {
			rt.Fingerprint = t.Fingerprint()
			rt.NotAfter = record.Latest(t.NotAfter)
		}
		asks := s.asks(t.Buckets)
		v := Decide(asks, &rt, now)
		out[i] = store.Internal.Verdict(&v, plain(asks))
	}
	return nil
}

// plain copies the answers to the type that decisions are made from.
func plain(asks []Ask) []record.Ask {
	out := make([]record.Ask, len(asks))
	for i := range asks {
		out[i] = record.Ask{Out: asks[i].Out, Granted: asks[i].Granted}
	}
	return out
}

// Settle implements store.Store.
func (s *Store) Settle(ctx context.Context, batch []store.Settlement, out []store.Outcome) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	for i := range batch {
		out[i] = s.settle(&batch[i], now)
	}
	return nil
}

func (s *Store) settle(b *store.Settlement, now int64) store.Outcome {
	if err := b.Check(); err != nil {
		return store.Outcome{Err: err}
	}
	asks := s.asks(b.Buckets)
	switch b.Op {
	case store.OpSettle, store.OpCancel:
		return store.Outcome{Gone: !Settle(asks, b.ID, uint64(b.Grant), b.Op == store.OpCancel, now)}
	case store.OpRenew:
		if end, kept := KeptLease(asks, b.ID, uint64(b.Grant), now); kept {
			return store.Outcome{Kept: true, End: time.UnixMicro(end)}
		}
		renewed, end := Renew(asks, b.ID, uint64(b.Grant), b.Hold.Microseconds(), now)
		if !renewed {
			return store.Outcome{Gone: true}
		}
		return store.Outcome{End: time.UnixMicro(end)}
	case store.OpCharge:
		for i := range asks {
			if b.Once && max(now, asks[i].Ledger.last) > store.Internal.SeenAt(b)+record.SeenLife {
				return store.Outcome{Err: store.ErrTooLate}
			}
		}
		Charge(asks, b.At.UnixMicro(), now)
		return store.Outcome{}
	case store.OpRefund:
		Refund(asks, store.Internal.SeenAt(b), now)
		return store.Internal.Refunded(plain(asks))
	case store.OpPause:
		until := b.At.UnixMicro()
		if b.Hold > 0 {
			for i := range asks {
				now = max(now, asks[i].Ledger.last)
			}
			until = now + b.Hold.Microseconds()
		}
		end, kept := PauseUntil(asks, until, b.Reason, now)
		return store.Outcome{End: store.Internal.Instant(end), Kept: kept}
	case store.OpUnpause:
		end := Unpause(asks, b.At.UnixMicro(), now)
		return store.Outcome{End: store.Internal.Instant(end), Kept: end > 0}
	}
	return store.Outcome{Err: store.ErrInvalid}
}

// Peek implements store.Store.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	for i := range buckets {
		if err := buckets[i].Check(priority); err != nil {
			out[i] = store.State{Verdict: store.Verdict{Fail: err}}
			continue
		}
		asks := s.asks(buckets[i : i+1])
		v := Peek(&asks[0], priority, now)
		st := store.State{Verdict: store.Internal.Verdict(&v, plain(asks)), Open: len(asks[0].Ledger.holds)}
		if p := asks[0].Ledger.pause; p.Until > v.Now {
			st.Pause = store.Pause{Until: time.UnixMicro(p.Until), Reason: p.Reason}
		}
		for j := range asks[0].Specs {
			st.States = append(st.States, asks[0].Ledger.usage(&asks[0].Specs[j], priority))
		}
		out[i] = st
	}
	return nil
}

func (l *Ledger) usage(s *record.Spec, priority int8) store.LimitUsage {
	lim, held := l.know(s), l.pending(s.ID)
	u := store.LimitUsage{Max: s.Effective[priority]}
	if s.Kind == record.Calendar {
		start, end := s.Rule.Window(l.last)
		u.Start, u.End = time.UnixMicro(start), time.UnixMicro(end)
		u.Used = lim.usedWindow(held, l.last, start, end)
	} else {
		u.Used = lim.used(held, l.last)
	}
	for _, p := range held {
		u.Held += p.n
	}
	u.Debt = max(0, u.Used-s.Effective[record.Priorities-1])
	return u
}

// Reset implements store.Resetter.
func (s *Store) Reset(ctx context.Context, keys []store.Key) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	for _, k := range keys {
		delete(s.ledgers, k)
	}
	return nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
