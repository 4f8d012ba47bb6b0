package drawgate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/internal/sleep"
	"github.com/drawgate/drawgate/store"
)

// Adjusted says what an adjustment changed.
type Adjusted struct {
	Limit string // its name
	Was   int64  // used before
	Used  int64  // used after: more than asked for if open reservations hold more, or a window has ended meanwhile
	Debt  int64  // how far Used exceeds what may be used: nothing is granted until it has been worked off
}

// Adjust corrects what one limit of the bucket that a names has used, such as to what the
// provider's console says. limit is its name; "" if only one limit can be corrected, which slots
// cannot. used is from 0 to MaxAmount. reason is for people, 1 to 256 bytes; a history keeps it as
// label "reason". Costs are ignored.
//
// It reads what is used, and then counts the difference, or gives it back as [Ask.Refund] does:
// what others do in between, such as another adjustment, counts in addition. used may be more than
// the limit: takes wait until it has been worked off. Nothing is done two seconds
// ([store.SendLife]) after the look, or given back in a calendar window that was opened after it.
//
// With an error that is [ErrStoreUnavailable] it may have arrived, and cannot arrive any more
// unless ctx ended: look at the status, or call it again, which reads first.
func (a Ask) Adjust(ctx context.Context, limit string, used int64, reason string) (Adjusted, error) {
	b, err := a.bucket()
	if err != nil {
		return Adjusted{}, err
	}
	j, err := a.Limiter.plan.adjustable(limit)
	if err == nil {
		err = checkAdjust(used, reason)
	}
	if err != nil {
		return Adjusted{}, err
	}
	a.Costs = nil
	st, err := a.Status(ctx, MaxPriority) // what the highest priority may use is what may be used at all
	if err == nil && st.Fallback {
		err = fmt.Errorf("%w: what is used cannot be read now", ErrStoreUnavailable)
	}
	if err != nil {
		return Adjusted{}, err
	}
	looked := time.Now()
	was := st.States[j].Used
	out := Adjusted{Limit: a.Limiter.plan.policy.Limits[j].Name, Was: was, Used: used}
	s := &store.Settlement{
		Op: store.OpCharge, Once: true, At: time.UnixMicro(st.at),
		Labels: []Label{{Name: "reason", Value: reason}, {Name: "limit", Value: out.Limit}},
	}
	if b.N[j] = used - was; b.N[j] < 0 {
		s.Op, b.N[j] = store.OpRefund, -b.N[j]
	}
	if b.N[j] != 0 {
		s.Buckets = []store.BucketCost{b}
		out.Used, err = a.Limiter.correct(ctx, s, j, was)
		if errors.Is(err, ErrStoreUnavailable) { // it may be on its way, and count in addition to the next adjustment
			sleep.For(ctx, time.Until(looked.Add(store.SendLife+time.Millisecond)))
		}
		if err != nil {
			return Adjusted{}, err
		}
	}
	out.Debt = max(0, out.Used-st.States[j].Max)
	return out, nil
}

// correct carries out the charge or the refund of an adjustment of limit j, and returns what is
// used then.
func (l *Limiter) correct(ctx context.Context, s *store.Settlement, j int, was int64) (used int64, err error) {
	done, err := l.settle(ctx, s)
	if err != nil {
		return 0, err
	}
	b := &s.Buckets[0]
	if s.Op == store.OpRefund {
		l.queue.wake(b.Key)
		if done.Back != nil {
			was -= done.Back[0][j]
		}
		return was, nil
	}
	used = was + b.N[j]
	if spec := &l.plan.specs[j]; spec.Kind == record.Bucket {
		used = min(used, max(was, spec.Full()))
	}
	return used, nil
}

// adjustable returns the position of the limit of that name.
func (p *Plan) adjustable(limit string) (at int, err error) {
	at = -1
	var names []string
	for j := range p.policy.Limits {
		l := &p.policy.Limits[j]
		switch {
		case l.Kind == Concurrency && l.Name == limit && limit != "":
			return 0, fmt.Errorf("%w: limit %q of policy %q counts who holds its slots, so it cannot be adjusted",
				ErrInvalid, limit, p.policy.Name)
		case l.Kind == Concurrency:
		case l.Name == limit:
			return j, nil
		default:
			names, at = append(names, l.Name), j
		}
	}
	switch {
	case limit == "" && len(names) == 1:
		return at, nil
	case len(names) == 0:
		return 0, fmt.Errorf("%w: policy %q has only slots, which are counted by who holds them and cannot be adjusted",
			ErrInvalid, p.policy.Name)
	case limit == "":
		return 0, fmt.Errorf("%w: policy %q has several limits: name one of %s", ErrInvalid, p.policy.Name,
			strings.Join(names, ", "))
	}
	return 0, fmt.Errorf("%w: policy %q has no limit %q; it has %s", ErrInvalid, p.policy.Name, limit,
		strings.Join(names, ", "))
}

func checkAdjust(used int64, reason string) error {
	switch {
	case used < 0 || used > MaxAmount:
		return fmt.Errorf("%w: %d units are not between 0 and %d", ErrInvalid, used, int64(MaxAmount))
	case reason == "":
		return fmt.Errorf("%w: an adjustment needs a reason", ErrInvalid)
	case len(reason) > store.MaxReason:
		return fmt.Errorf("%w: the reason has %d bytes, more than %d", ErrInvalid, len(reason), store.MaxReason)
	}
	return nil
}
