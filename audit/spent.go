package audit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"
)

// Spender is whose calls are added up together.
type Spender struct {
	Day                        string // on which they began
	Team, Key, Upstream, Model string
}

// Unended is a call whose end no ledger tells: its process was killed, or still makes it.
type Unended struct {
	Spender

	Run      string // of the process
	Host     string
	Call     uint64
	Granted  time.Time // or when it began, if it is not told whether it was granted
	Reserved []Amount
	// the store may have nothing of it: it was unavailable when the call was granted, or it is not
	// told whether it was
	Uncertain bool
	// the store may have what it reserved beside what it used: it was unavailable when the call was
	// granted, and had been asked, then or later, and did not answer
	Twice bool
}

// Spent is what ledgers say of what calls used.
type Spent struct {
	Ended   map[Spender]map[string]int64 // units of the calls that have ended
	Unended []Unended
	// Doubtful are calls that have ended of which the ledger does not tell that the store has heard
	// it: it may have what they reserved, or nothing if they are Uncertain. They are in Ended. So
	// are calls that the store did not answer, which were not made, and those that may count Twice.
	//
	// Ledgers of earlier versions do not tell what the store has heard. Of a process that did not
	// end as it should, or ended while the store was unavailable, or still runs, these are the
	// calls that ended less than a minute before the store last granted it one, or later.
	Doubtful []Doubtful
	Calls    int64 // that have ended, or whose end is not told
	Others   int64 // calls of no key, or made while it was not counted what calls spend
	Missing  int64 // lines that could not be written or read
}

// Doubtful is a call of which the store may not have what it used.
type Doubtful struct {
	Unended

	Used  []Amount // of a unit that is not told it is what was reserved
	ended int64
	line  uint64 // that tells its end
	key   callKey
}

// doubt is how long it takes to deliver a settlement to a store that answers: see [Spent.Doubtful].
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
	asked, open := map[callKey]*Unended{}, map[callKey]*Unended{}
	var late []Doubtful
	granted, down := int64(0), false // when the store last granted a call, and whether it did not grant the last one
	heard := uint64(0)               // see Line.Heard
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
		if l.Miscounted {
			for _, c := range open {
				c.Twice = c.Uncertain
			}
			for _, d := range late {
				d.Twice = d.Uncertain
				s.Doubtful = append(s.Doubtful, d)
			}
			late = nil
		}
		if l.Heard > heard {
			heard = l.Heard
			late = slices.DeleteFunc(late, func(d Doubtful) bool { return d.line <= heard })
		}
		switch l.Event {
		case Asked:
			asked[callKey{l.Upstream, l.Call, l.Asked}] = r.unended(day)
		case Refused:
			k.granted = l.Asked
			if c := asked[k]; c != nil && (l.Unsure || !strings.Contains(l.Limit, "/")) { // no limit refused it
				s.Doubtful = append(s.Doubtful, Doubtful{Unended: *c, Used: nothing(c.Reserved)})
			}
			delete(asked, k)
		case Reserved:
			delete(asked, callKey{l.Upstream, l.Call, l.Asked})
			if down = l.Fallback; !down {
				granted = max(granted, l.Granted)
			}
			if l.Key == "" || l.Asked == 0 || !slices.ContainsFunc(l.Reserved, isPrompt) {
				s.Others++
				continue
			}
			open[k] = r.unended(day)
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
				for heard == 0 && len(late) > 0 && late[0].ended < granted-doubt {
					late = late[1:]
				}
				d := Doubtful{Unended: *c, Used: slices.Clone(used), ended: l.At, line: l.N, key: k}
				if c.Twice {
					s.Doubtful = append(s.Doubtful, d)
				} else {
					late = append(late, d)
				}
			}
		case Unheard:
			if i := slices.IndexFunc(late, func(d Doubtful) bool { return d.key == k }); i >= 0 {
				s.Doubtful = append(s.Doubtful, late[i])
				late = slices.Delete(late, i, i+1)
			}
		case Opened, Alive, Closed:
		}
	}
	s.Calls += int64(len(asked))
	maps.Copy(open, asked)
	for _, c := range open {
		s.Unended = append(s.Unended, *c)
	}
	if heard > 0 || !r.info.Closed || down {
		s.Doubtful = append(s.Doubtful, late...)
	}
	return nil
}

// unended returns the call of the line that was read last.
func (r *run) unended(day func(time.Time) string) *Unended {
	l := &r.line
	return &Unended{
		Spender: Spender{day(time.Unix(0, l.Asked)), l.Team, l.Key, l.Upstream, l.Model},
		Run:     r.info.ID, Host: r.info.Host, Call: l.Call, Granted: time.Unix(0, cmp.Or(l.Granted, l.Asked)),
		Reserved: slices.Clone(l.Reserved), Uncertain: l.Fallback || l.Event == Asked, Twice: l.Unsure,
	}
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
	reported := map[string]bool{}
	for _, a := range used {
		reported[a.Unit] = true
		sum[a.Unit] += a.N
	}
	for _, a := range c.Reserved {
		if !reported[a.Unit] {
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
