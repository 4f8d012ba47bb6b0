package spend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/drawgate/drawgate/store"
)

// Units are what calls used.
type Units struct {
	Requests     int64
	PromptTokens int64 // caches included
	AnswerTokens int64 // reasoning included
	Micros       int64 // millionths of the currency
}

// add adds up two amounts.
func (u *Units) add(o *Units) {
	u.Requests += o.Requests
	u.PromptTokens += o.PromptTokens
	u.AnswerTokens += o.AnswerTokens
	u.Micros += o.Micros
}

// Row is what was counted by a meter, or by several. A field of the meter that differs between them
// is empty.
type Row struct {
	Meter

	Used Units // by calls that have ended, and by those whose process died: the most that they can have used
	Open Units // the most that calls which are under way can use
}

// Bounds of what is read at a time.
const (
	peekAtOnce = 250
	readers    = 8
)

// ErrCannotList is the error for a store that cannot tell which meters it has.
var ErrCannotList = errors.New("spend: this store cannot list what it has counted")

// Read returns what was counted on the days from the first to the last one, one row for each meter,
// ordered by its fields. money is the unit of costs, as in [Policy]. Meters of another key
// than key are not read, unless that is "".
func Read(ctx context.Context, s store.Store, money string, first, last time.Time, key string) ([]Row, error) {
	lister, ok := s.(store.Lister)
	if !ok {
		return nil, ErrCannotList
	}
	plan, err := Policy(money).Compile()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var rows []Row
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for _, day := range days(first, last) {
		g.Go(func() error {
			of, err := readDay(ctx, s, lister, plan.Plan, day, key)
			mu.Lock()
			defer mu.Unlock()
			rows = append(rows, of...)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b Row) int { return a.compare(&b.Meter) })
	return rows, nil
}

// days returns the days from the first to the last one.
func days(first, last time.Time) (list []string) {
	at := func(t time.Time, more int) time.Time {
		return time.Date(t.Year(), t.Month(), t.Day()+more, 0, 0, 0, 0, time.UTC)
	}
	for i, end := 0, at(last, 0); !at(first, i).After(end); i++ {
		list = append(list, at(first, i).Format(dayFormat))
	}
	return list
}

// readDay reads the meters of a day.
func readDay(ctx context.Context, s store.Store, lister store.Lister, plan *store.Plan, day string,
	key string,
) ([]Row, error) {
	var keys []store.Key
	err := lister.List(ctx, day, PolicyName, func(k store.Key) bool {
		if isMeter(k.Name, key) { // else no gateway has made it
			keys = append(keys, k)
		}
		return true
	})
	if err != nil {
		return nil, fmt.Errorf("spend: the meters of %s cannot be listed: %w", day, err)
	}
	var rows []Row
	for some := range slices.Chunk(keys, peekAtOnce) {
		buckets, states := make([]store.BucketCost, len(some)), make([]store.State, len(some))
		for i, k := range some {
			buckets[i] = store.BucketCost{Key: k, Plan: plan}
		}
		err := s.Peek(ctx, buckets, 0, states)
		for i := range states {
			if err == nil {
				err = states[i].Fail
			}
		}
		if err != nil {
			return nil, fmt.Errorf("spend: the meters of %s cannot be read: %w", day, err)
		}
		for i, k := range some {
			row := Row{}
			row.Meter, _ = meterOf(k.Tenant, k.Name) // it was read above
			row.count(plan, states[i].States)
			if row.Used != (Units{}) || row.Open != (Units{}) {
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

// count reads what a meter's limits have used.
func (r *Row) count(plan *store.Plan, states []store.LimitUsage) {
	for j, l := range plan.Policy().Limits {
		if j >= len(states) {
			return
		}
		r.Used.count(l.Name, states[j].Used-states[j].Held)
		r.Open.count(l.Name, states[j].Held)
	}
}

// count adds what a limit counted.
func (u *Units) count(limit string, n int64) {
	switch limit {
	case limitRequests:
		u.Requests += n
	case limitPrompt:
		u.PromptTokens += n
	case limitAnswer:
		u.AnswerTokens += n
	case limitWhole:
		u.Micros += n * million
	case limitRest:
		u.Micros += n
	}
}

// all returns the amounts, in the same order for all.
func (u *Units) all() [4]int64 {
	return [...]int64{u.Requests, u.PromptTokens, u.AnswerTokens, u.Micros}
}

// Sum adds up rows whose meters are the same as far as by tells: it empties the other fields. Rows
// come in the order of what is left of their meters.
func Sum(rows []Row, by func(*Meter)) []Row {
	sums := map[Meter]*Row{}
	var list []*Row
	for _, r := range rows {
		m := r.Meter
		by(&m)
		sum := sums[m]
		if sum == nil {
			sum = &Row{Meter: m}
			sums[m], list = sum, append(list, sum)
		}
		sum.Used.add(&r.Used)
		sum.Open.add(&r.Open)
	}
	slices.SortFunc(list, func(a, b *Row) int { return a.compare(&b.Meter) })
	out := make([]Row, len(list))
	for i := range list {
		out[i] = *list[i]
	}
	return out
}
