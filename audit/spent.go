package audit

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Spender is whose calls are added up together.
type Spender struct {
	Day                        string // on which they began
	Team, Key, Upstream, Model string
}

// Unended is a call that was granted, and whose end no ledger tells: its process was killed, or
// still makes it.
type Unended struct {
	Spender

	Run      string // of the process
	Host     string
	Call     uint64
	Granted  time.Time
	Reserved []Amount
}

// Spent is what ledgers say of what calls used.
type Spent struct {
	Ended   map[Spender]map[string]int64 // units of the calls that have ended
	Unended []Unended
	// Doubtful are calls that ended in the last minute of a ledger whose process did not end as it
	// should, or still runs: what they used may not have reached the store, which then has what
	// they reserved. They are in Ended.
	Doubtful []Doubtful
	Calls    int64 // that have ended, or whose end is not told
	Others   int64 // calls of no key, or made while it was not counted what calls spend
	Missing  int64 // lines that could not be written or read
}

// Doubtful is a call of which the store may have what it reserved instead of what it used.
type Doubtful struct {
	Unended

	Used  []Amount // of a unit that is not told it is what was reserved
	ended int64
}

// doubt is how long before the end of a process that was killed a settlement may not have been
// delivered. Where the store was away it may be longer.
const doubt = int64(time.Minute)

// Spending adds up what calls used, by those whose key is told. day names the day of an instant.
// The error is about a file that cannot be read.
func Spending(ctx context.Context, paths []string, day func(time.Time) string) (*Spent, error) {
	list, err := runs(paths)
	if err != nil {
		return nil, err
	}
	s := &Spent{Ended: map[Spender]map[string]int64{}}
	for _, r := range list {
		if err := s.read(ctx, r, day); err != nil {
			r.close()
			return nil, err
		}
		r.end()
		s.Missing += r.lost + r.bad
	}
	slices.SortFunc(s.Unended, func(a, b Unended) int {
		return cmp.Or(a.Granted.Compare(b.Granted), cmp.Compare(a.Run, b.Run), cmp.Compare(a.Call, b.Call))
	})
	return s, nil
}

// read adds up one run.
func (s *Spent) read(ctx context.Context, r *run, day func(time.Time) string) error {
	open := map[callKey]*Unended{}
	var late []Doubtful
	for n := 0; ; n++ {
		if n%cancelEvery == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ok, err := r.next()
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		l := &r.line
		k := callKey{l.Upstream, l.Call, l.Granted}
		switch l.Event {
		case Reserved:
			if l.Key == "" || l.Asked == 0 || !slices.ContainsFunc(l.Reserved, isPrompt) {
				s.Others++
				continue
			}
			open[k] = &Unended{
				Spender: Spender{day(time.Unix(0, l.Asked)), l.Team, l.Key, l.Upstream, l.Model},
				Run:     r.info.ID, Host: r.info.Host, Call: l.Call, Granted: time.Unix(0, l.Granted),
				Reserved: slices.Clone(l.Reserved),
			}
			s.Calls++
		case Settled, Refunded:
			if c := open[k]; c != nil {
				delete(open, k)
				used := l.Used
				if l.Event == Refunded {
					used = nothing(c.Reserved)
				} else {
					s.ended(c, used)
				}
				for len(late) > 0 && late[0].ended < l.At-doubt {
					late = late[1:]
				}
				late = append(late, Doubtful{*c, slices.Clone(used), l.At})
			}
		case Refused, Opened, Alive, Closed:
		}
	}
	for _, c := range open {
		s.Unended = append(s.Unended, *c)
	}
	if !r.info.Closed {
		s.Doubtful = append(s.Doubtful, late...)
	}
	return nil
}

// isPrompt reports whether an amount is that of a prompt, which is told where it is counted what
// calls spend.
func isPrompt(a Amount) bool { return a.Unit == "prompt_tokens" }

// nothing returns that nothing was used of what was reserved.
func nothing(reserved []Amount) []Amount {
	used := slices.Clone(reserved)
	for i := range used {
		used[i].N = 0
	}
	return used
}

// ended adds what a call used: of a unit that is not told the reservation stands.
func (s *Spent) ended(c *Unended, used []Amount) {
	sum := s.Ended[c.Spender]
	if sum == nil {
		sum = map[string]int64{}
		s.Ended[c.Spender] = sum
	}
	told := map[string]bool{}
	for _, a := range used {
		told[a.Unit] = true
		sum[a.Unit] += a.N
	}
	for _, a := range c.Reserved {
		if !told[a.Unit] {
			sum[a.Unit] += a.N
		}
	}
}

// Between leaves out what is of other days: before the first one or after the last one.
func (s *Spent) Between(first, last string) {
	for p := range s.Ended {
		if p.Day < first || p.Day > last {
			delete(s.Ended, p)
		}
	}
	s.Unended = slices.DeleteFunc(s.Unended, func(u Unended) bool { return u.Day < first || u.Day > last })
	s.Doubtful = slices.DeleteFunc(s.Doubtful, func(u Doubtful) bool { return u.Day < first || u.Day > last })
}
