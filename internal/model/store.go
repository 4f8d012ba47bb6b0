package model

import (
	"context"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
	"github.com/drawgate/drawgate/internal/record"
)

// Store is a drawgate.Store made of ledgers.
type Store struct {
	now   func() int64 // Unix µs
	exact bool

	mu      sync.Mutex
	ledgers map[drawgate.Key]*Ledger
	closed  bool
}

var (
	_ drawgate.Store    = (*Store)(nil)
	_ drawgate.Resetter = (*Store)(nil)
)

// New returns an empty store with a clock, in Unix microseconds. exact says that a rolling limit
// without a precision is exact.
func New(now func() int64, exact bool) *Store {
	return &Store{now: now, exact: exact, ledgers: map[drawgate.Key]*Ledger{}}
}

// usable returns why a call cannot be carried out.
func (s *Store) usable(ctx context.Context) error {
	switch {
	case s.closed:
		return drawgate.ErrClosed
	case ctx.Err() != nil:
		return &drawgate.StoreError{Store: "model", Op: "begin", Err: ctx.Err()}
	}
	return nil
}

func (s *Store) asks(buckets []drawgate.BucketCost) []Ask {
	asks := make([]Ask, len(buckets))
	for i, b := range buckets {
		l := s.ledgers[b.Key]
		if l == nil {
			l = &Ledger{}
			s.ledgers[b.Key] = l
		}
		asks[i] = Ask{Ledger: l, Specs: answer.Specs(b.Plan, s.exact), N: record.Amounts(b.N)}
	}
	return asks
}

// Take implements drawgate.Store.
func (s *Store) Take(ctx context.Context, batch []drawgate.Take, out []drawgate.Decision) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	for i := range batch {
		t := &batch[i]
		if err := answer.Check(t); err != nil {
			out[i] = drawgate.Decision{Fail: err}
			continue
		}
		rt := record.Take{
			ID: t.ID, Grant: uint64(t.Grant), Hold: t.Hold.Microseconds(), Ahead: t.Ahead.Microseconds(), Lease: t.Lease,
			Given: t.Given, Priority: t.Priority,
		}
		if t.ID != "" {
			rt.Fingerprint = answer.Fingerprint(t)
			rt.NotAfter = record.Latest(t.NotAfter)
		}
		asks := s.asks(t.Buckets)
		v := Decide(asks, &rt, now)
		out[i] = answer.New(t, v, plain(asks))
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

// Settle implements drawgate.Store.
func (s *Store) Settle(ctx context.Context, batch []drawgate.Settlement, out []drawgate.Outcome) error {
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

func (s *Store) settle(b *drawgate.Settlement, now int64) drawgate.Outcome {
	if err := answer.CheckSettlement(b); err != nil {
		return drawgate.Outcome{Err: err}
	}
	asks := s.asks(b.Buckets)
	switch b.Op {
	case drawgate.OpSettle, drawgate.OpCancel:
		return drawgate.Outcome{Gone: !Settle(asks, b.ID, uint64(b.Grant), b.Op == drawgate.OpCancel, now)}
	case drawgate.OpRenew:
		if end, kept := KeptLease(asks, b.ID, uint64(b.Grant), now); kept {
			return drawgate.Outcome{Kept: true, End: time.UnixMicro(end)}
		}
		renewed, end := Renew(asks, b.ID, uint64(b.Grant), b.Hold.Microseconds(), now)
		if !renewed {
			return drawgate.Outcome{Gone: true}
		}
		return drawgate.Outcome{End: time.UnixMicro(end)}
	case drawgate.OpCharge:
		for i := range asks {
			if b.Once && max(now, asks[i].Ledger.last) > answer.SeenAt(b)+record.SeenLife {
				return drawgate.Outcome{Err: drawgate.ErrTooLate}
			}
		}
		Charge(asks, b.At.UnixMicro(), now)
		return drawgate.Outcome{}
	case drawgate.OpRefund:
		Refund(asks, answer.SeenAt(b), now)
		return answer.Refunded(plain(asks))
	case drawgate.OpPause:
		until := b.At.UnixMicro()
		if b.Hold > 0 {
			for i := range asks {
				now = max(now, asks[i].Ledger.last)
			}
			until = now + b.Hold.Microseconds()
		}
		end, kept := PauseUntil(asks, until, b.Reason, now)
		return drawgate.Outcome{End: answer.Instant(end), Kept: kept}
	case drawgate.OpUnpause:
		end := Unpause(asks, b.At.UnixMicro(), now)
		return drawgate.Outcome{End: answer.Instant(end), Kept: end > 0}
	}
	return drawgate.Outcome{Err: drawgate.ErrInvalid}
}

// Peek implements drawgate.Store.
func (s *Store) Peek(ctx context.Context, buckets []drawgate.BucketCost, priority int8, out []drawgate.Status) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return err
	}
	now := s.now()
	for i := range buckets {
		if err := answer.CheckPeek(&buckets[i], priority); err != nil {
			out[i] = drawgate.Status{Decision: drawgate.Decision{Fail: err}}
			continue
		}
		asks := s.asks(buckets[i : i+1])
		v := Peek(&asks[0], priority, now)
		t := drawgate.Take{Buckets: buckets[i : i+1]}
		st := drawgate.Status{Decision: answer.New(&t, v, plain(asks)), Open: len(asks[0].Ledger.holds)}
		if p := asks[0].Ledger.pause; p.Until > v.Now {
			st.Pause = drawgate.Pause{Until: time.UnixMicro(p.Until), Reason: p.Reason}
		}
		for j := range asks[0].Specs {
			st.States = append(st.States, asks[0].Ledger.usage(&asks[0].Specs[j], priority))
		}
		out[i] = st
	}
	return nil
}

func (l *Ledger) usage(s *record.Spec, priority int8) drawgate.LimitUsage {
	lim, held := l.know(s), l.pending(s.ID)
	u := drawgate.LimitUsage{Max: s.Effective[priority]}
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

// Reset implements drawgate.Resetter.
func (s *Store) Reset(ctx context.Context, keys []drawgate.Key) error {
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

// Close implements drawgate.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
