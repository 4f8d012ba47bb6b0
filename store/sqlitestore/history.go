package sqlitestore

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// The operations of the history. The numbers are stored and never change.
const (
	opTake int64 = iota
	opSettle
	opCancel
	opCharge
	opExpire
	opRefund
	opPause
	opUnpause
)

var opNames = [...]string{"take", "settle", "cancel", "charge", "expire", "refund", "pause", "unpause"}

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

// formatUnits writes amounts as "requests=1 tokens=250": one amount per unit, the largest if
// several limits have that unit.
func formatUnits(limits []store.Limit, n store.Amounts, skip store.Kind) string {
	var buf []byte
	for i := range limits {
		unit, most, first := unitOf(&limits[i]), int64(0), true
		for j := range limits {
			if unitOf(&limits[j]) != unit || limits[j].Kind == skip {
				continue
			}
			first = first && j >= i
			most = max(most, n[j])
		}
		if !first || most == 0 {
			continue
		}
		if len(buf) > 0 {
			buf = append(buf, ' ')
		}
		buf = append(append(buf, unit...), '=')
		buf = strconv.AppendInt(buf, most, 10)
	}
	return string(buf)
}

func unitOf(l *store.Limit) string {
	if l.Unit == "" {
		return store.UnitRequests
	}
	return l.Unit
}

func parseUnits(text string) (units []store.Cost) {
	for f := range strings.FieldsSeq(text) {
		unit, n, _ := strings.Cut(f, "=")
		v, _ := strconv.ParseInt(n, 10, 64)
		units = append(units, store.Cost{Unit: unit, N: v})
	}
	return units
}

// unitsMemo remembers the last text, because most takes of a batch have the same amounts.
type unitsMemo struct {
	plan *store.Plan
	n    store.Amounts
	text string
}

func (m *unitsMemo) units(plan *store.Plan, n store.Amounts) string {
	if m.plan != plan || m.n != n {
		*m = unitsMemo{plan, n, formatUnits(plan.Policy().Limits, n, 0)}
	}
	return m.text
}

// settledUnits returns what a settlement used of an open reservation.
func settledUnits(bc *store.BucketCost, open *record.Open) string {
	var n store.Amounts
	specs := store.Internal.Specs(bc.Plan, true)
	for i := range open.Parts {
		p := &open.Parts[i]
		for j := range specs {
			if specs[j].ID != p.Limit {
				continue
			}
			if n[j] = bc.N[j]; n[j] == store.KeepEstimate {
				n[j] = p.N
			}
		}
	}
	for j := range specs { // what nothing was reserved of
		held := slices.ContainsFunc(open.Parts, func(p record.Part) bool { return p.Limit == specs[j].ID })
		if !held && specs[j].Kind != record.Concurrency {
			n[j] = max(0, bc.N[j])
		}
	}
	return formatUnits(bc.Plan.Policy().Limits, n, 0)
}

// chargedUnits returns what a charge counted. Concurrency limits ignore charges.
func chargedUnits(bc *store.BucketCost) string {
	return formatUnits(bc.Plan.Policy().Limits, bc.N, store.Concurrency)
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

// pauseLabels returns the labels of an event that begins or ends a pause: the caller's, until when
// the pause lasts or would have lasted, and why.
func pauseLabels(st *store.Settlement, p *record.Pause) []byte {
	labels := append(slices.Clone(st.Labels), store.Label{
		Name:  "until",
		Value: time.UnixMicro(p.Until).UTC().Format(time.RFC3339Nano),
	})
	if st.Reason != "" {
		labels = append(labels, store.Label{Name: "reason", Value: st.Reason})
	}
	return labelBytes(labels)
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
		f.op = int64(slices.Index(opNames[:], q.Op))
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
	if op < 0 || op >= int64(len(opNames)) {
		return e, fmt.Errorf("%w: an unknown operation in the history", ErrForeign)
	}
	e.Op = opNames[op]
	e.Key.Tenant, _ = row[2].(string)
	e.Key.Policy, _ = row[3].(string)
	e.Key.Name, _ = row[4].(string)
	units, _ := row[5].(string)
	e.Units = parseUnits(units)
	e.ID, _ = row[6].(string)
	labels, _ := row[7].([]byte)
	e.Labels, err = parseLabels(labels)
	return e, err
}
