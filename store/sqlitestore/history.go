package sqlitestore

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/journal"
	"github.com/drawgate/drawgate/store"
)

// event is a row of the history.
type event struct {
	at     int64
	op     int64
	key    store.Key
	units  string
	id     string
	labels []byte
}

// many is how many plain events go into one statement, which is a third cheaper than single
// statements.
const many = 16

// addAll appends events to the history.
func (c *conn) addAll(events []event) error {
	var args [6 * many]any
	for len(events) > 0 {
		n := 0
		for n < min(many, len(events)) && events[n].plain() {
			e := &events[n]
			copy(args[6*n:], []any{e.at, e.op, e.key.Tenant, e.key.Policy, e.key.Name, e.units})
			n++
		}
		if n == many {
			if _, err := c.exec(qAddMany, args[:]...); err != nil {
				return err
			}
			events = events[many:]
			continue
		}
		for i := range max(n, 1) {
			if err := c.add(&events[i]); err != nil {
				return err
			}
		}
		events = events[max(n, 1):]
	}
	return nil
}

// plain reports whether an event has neither an ID nor labels.
func (e *event) plain() bool { return e.id == "" && e.labels == nil }

func (c *conn) add(e *event) (err error) {
	if e.plain() {
		_, err = c.exec(qAddPlain, e.at, e.op, e.key.Tenant, e.key.Policy, e.key.Name, e.units)
	} else {
		_, err = c.exec(qAddEvent, e.at, e.op, e.key.Tenant, e.key.Policy, e.key.Name, e.units, e.id, e.labels)
	}
	return err
}

// unitsMemo remembers the last text, because most takes of a batch have the same amounts.
type unitsMemo struct {
	plan *store.Plan
	n    store.Amounts
	text string
}

func (m *unitsMemo) units(plan *store.Plan, n store.Amounts) string {
	if m.plan != plan || m.n != n {
		*m = unitsMemo{plan, n, journal.Units(plan.Policy().Limits, n, 0)}
	}
	return m.text
}

func labelBytes(labels []store.Label) (buf []byte) {
	for _, l := range labels {
		for _, s := range [...]string{l.Name, l.Value} {
			buf = binary.AppendUvarint(buf, uint64(len(s)))
			buf = append(buf, s...)
		}
	}
	return buf
}

var errLabels = errors.New("labels of the history are damaged")

func parseLabels(b []byte) (labels []store.Label, err error) {
	for len(b) > 0 {
		var parts [2]string
		for i := range parts {
			n, k := binary.Uvarint(b)
			if k <= 0 || n > uint64(len(b)-k) {
				return nil, errLabels
			}
			parts[i] = string(b[k : k+int(n)])
			b = b[k+int(n):]
		}
		labels = append(labels, store.Label{Name: parts[0], Value: parts[1]})
	}
	return labels, nil
}

// clockSlack is how far the clocks of the writing processes may differ without Read missing an
// event.
const clockSlack = int64(time.Hour / time.Microsecond)

// pageRows is how many rows of the history are searched at a time.
const pageRows = 2048

// Read implements [store.Journal]. It yields what was admitted, including what is written during
// the call if want.To lies ahead. The end of a hold appears when the store noticed it.
//
// The history has no index: Read finds want.From by bisection, which is correct as long as clocks
// were not set back by more than an hour.
func (s *Store) Read(ctx context.Context, want store.EventQuery, yield func(store.Event) bool) error {
	f := filterOf(&want)
	var seq int64
	err := s.read(ctx, "read", func(c *conn) (err error) {
		seq, err = before(c, f.from-clockSlack)
		return err
	})
	for err == nil {
		var page []store.Event
		more := false
		err = s.read(ctx, "read", func(c *conn) (err error) {
			page, seq, more, err = f.events(c, seq)
			return err
		})
		for i := range page {
			if want.Match(&page[i]) && !yield(page[i]) {
				return nil
			}
		}
		if !more {
			break
		}
	}
	return err
}

// filter is the part of a query that SQLite decides. It admits no less than the query.
type filter struct {
	from, to                 int64
	policy, op, tenant, name any    // nil: any
	label                    []byte // bytes that a row's labels contain
}

func filterOf(q *store.EventQuery) *filter {
	f := &filter{from: ceilMicro(q.From), to: forever}
	if !q.To.IsZero() {
		f.to = ceilMicro(q.To)
	}
	if q.Policy != "" {
		f.policy = q.Policy
	}
	if q.Op != "" {
		f.op = int64(journal.Number(q.Op))
	}
	if q.Tenant != nil {
		f.tenant = *q.Tenant
	}
	if q.Key != nil {
		f.name = *q.Key
	}
	if len(q.Labels) > 0 {
		f.label = labelBytes(q.Labels[:1])
	}
	return f
}

// ceilMicro returns the first µs at or after t.
func ceilMicro(t time.Time) int64 { return t.Add(time.Microsecond - 1).UnixMicro() }

// before returns a sequence number after which every event at or after instant at lies.
func before(c *conn, at int64) (int64, error) {
	lo, _, err := c.number(qFirstSeq, int64(-1<<63))
	if err != nil {
		return 0, err
	}
	hi, _, err := c.number(qLastSeq)
	if err != nil {
		return 0, err
	}
	hi++
	for lo < hi {
		mid := lo + (hi-lo)/2
		t, ok, err := c.number(qAtFrom, mid)
		if err != nil {
			return 0, err
		}
		if ok && t < at {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1, nil
}

// events returns what the filter admits of the next rows after a number, the number of the last
// row, and whether there may be more.
func (f *filter) events(c *conn, seq int64) (page []store.Event, end int64, more bool, err error) {
	first, ok, err := c.number(qFirstSeq, seq) // others may have dropped rows
	if err != nil || !ok {
		return nil, seq, false, err
	}
	last, over := first, false
	err = c.query(qPageEnd, func(row []driver.Value) error {
		last, _ = row[0].(int64)
		at, _ := row[1].(int64)
		over = f.to < forever-clockSlack && at >= f.to+clockSlack
		return nil
	}, first+pageRows-1)
	if err != nil {
		return nil, seq, false, err
	}
	err = c.query(qEvents, func(row []driver.Value) error {
		e, err := eventOf(row)
		page = append(page, e)
		return err
	}, first, last, f.from, f.to, f.policy, f.op, f.tenant, f.name, f.label)
	return page, last, !over, err
}

func eventOf(row []driver.Value) (e store.Event, err error) {
	at, _ := row[0].(int64)
	e.At = time.UnixMicro(at)
	op, _ := row[1].(int64)
	var known bool
	if e.Op, known = journal.Name(op); !known {
		return e, fmt.Errorf("%w: an unknown operation in the history", ErrForeign)
	}
	e.Key.Tenant, _ = row[2].(string)
	e.Key.Policy, _ = row[3].(string)
	e.Key.Name, _ = row[4].(string)
	units, _ := row[5].(string)
	e.Units = journal.ParseUnits(units)
	e.ID, _ = row[6].(string)
	labels, _ := row[7].([]byte)
	e.Labels, err = parseLabels(labels)
	return e, err
}
