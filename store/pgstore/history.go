package pgstore

import (
	"context"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drawgate/drawgate/internal/journal"
	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/pgstore/internal/pg"
)

// event is a row of the history.
type event struct {
	op     int16
	takes  int32
	key    store.Key
	units  string
	id     string
	labels []store.Label
}

// plain reports whether an event has neither an ID nor labels.
func (e *event) plain() bool { return e.id == "" && len(e.labels) == 0 }

// note adds an event to the history. Plain takes that are alike become one row.
func (st *step) note(e event) {
	if !st.s.keepsHistory(e.key) {
		return
	}
	e.takes = 1
	if e.plain() {
		for i := len(st.events) - 1; i >= max(0, len(st.events)-8); i-- {
			if x := &st.events[i]; x.plain() && x.op == e.op && x.key == e.key && x.units == e.units {
				x.takes++
				return
			}
		}
	}
	st.events = append(st.events, e)
}

// queueEvents adds the writing of the events: of plain ones by one statement.
func (st *step) queueEvents(b *pg.Batch) {
	var at []int64
	var op []int16
	var tenant, policy, name, units []string
	var takes []int32
	for i := range st.events {
		e := &st.events[i]
		k := store.Key{Tenant: text(e.key.Tenant), Policy: text(e.key.Policy), Name: text(e.key.Name)}
		if e.plain() {
			at, op, takes = append(at, st.now), append(op, e.op), append(takes, e.takes)
			tenant, policy, name = append(tenant, k.Tenant), append(policy, k.Policy), append(name, k.Name)
			units = append(units, text(e.units))
			continue
		}
		var id *string
		if e.id != "" {
			t := text(e.id)
			id = &t
		}
		labels, whole := labelTexts(e.labels), []string(nil)
		if short := shortened(labels); !slices.Equal(short, labels) {
			labels, whole = short, labels
		}
		b.Add(st.s.sql.event, st.now, e.op, k.Tenant, k.Policy, k.Name, e.takes, text(e.units), id, labels, whole)
	}
	if len(at) > 0 {
		b.Add(st.s.sql.events, at, op, tenant, policy, name, takes, units)
	}
}

// notText is how a text begins that the database cannot keep, and which is therefore written in
// hexadecimal digits.
const notText = "\x01"

// text returns a text as the database can keep it.
func text(s string) string {
	if utf8.ValidString(s) && !strings.Contains(s, "\x00") && !strings.HasPrefix(s, notText) {
		return s
	}
	return notText + hex.EncodeToString([]byte(s))
}

// untext is the inverse of text.
func untext(s string) string {
	if rest, ok := strings.CutPrefix(s, notText); ok {
		if b, err := hex.DecodeString(rest); err == nil {
			return string(b)
		}
	}
	return s
}

var labelName = strings.NewReplacer(`\`, `\\`, `=`, `\=`)

// labelTexts returns labels as name=value.
func labelTexts(labels []store.Label) (all []string) {
	for _, l := range labels {
		all = append(all, text(labelName.Replace(l.Name)+"="+l.Value))
	}
	return all
}

// longestLabel is how many bytes of a label are indexed.
const longestLabel = 1000

// shortened returns how labels begin, by which they are found.
func shortened(texts []string) []string {
	short := slices.Clone(texts)
	for i, t := range short {
		if len(t) > longestLabel {
			short[i] = strings.ToValidUTF8(t[:longestLabel], "")
		}
	}
	return short
}

// labelOf is the inverse of labelTexts for one label.
func labelOf(s string) (l store.Label) {
	s = untext(s)
	var name strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '=' {
			l.Value = s[i+1:]
			break
		}
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		name.WriteByte(s[i])
	}
	l.Name = name.String()
	return l
}

// noteSettled records in the history what a settlement did to one bucket.
func (st *step) noteSettled(s *store.Settlement, bc *store.BucketCost, r *row, open *record.Open) {
	if open == nil && s.Op != store.OpCharge {
		return
	}
	st.mark(r)
	e := event{key: r.key, id: s.ID, labels: r.notes[s.ID].labels}
	switch s.Op {
	case store.OpSettle:
		e.op, e.units = journal.Settle, journal.Settled(bc, open)
	case store.OpCancel:
		e.op = journal.Cancel
	case store.OpCharge: // of which concurrency limits take no notice
		e.op, e.units, e.id = journal.Charge, journal.Charged(bc), ""
		e.labels = s.Labels
	default:
		return
	}
	st.note(e)
	if s.Op != store.OpCharge {
		delete(r.notes, s.ID)
	}
}

// noteCorrected records in the history what a settlement gave back of holds that had ended.
func (st *step) noteCorrected(s *store.Settlement, rows []*row, out *store.Outcome) {
	for i, yes := range out.Corrected {
		if !yes {
			continue
		}
		r := rows[i]
		st.mark(r)
		if out.Back == nil || out.Back[i] == (store.Amounts{}) {
			continue
		}
		r.freed = true
		st.note(event{
			op: journal.Refund, key: r.key, id: s.ID, units: journal.Units(s.Buckets[i].Plan.Policy().Limits,
				out.Back[i], 0),
			labels: s.Labels,
		})
	}
}

// notePause records in the history that a bucket's pause began or ended, if it did. before is its
// pause until then.
func (st *step) notePause(s *store.Settlement, r *row, before *record.Pause) {
	e, p := event{op: journal.Pause, key: r.key}, r.rec.Pause
	switch p {
	case before:
		return
	case nil:
		e.op, p = journal.Unpause, before
	}
	e.labels = journal.PauseLabels(s, p)
	st.mark(r)
	st.note(e)
}

// pageRows is how many rows are read at a time.
const pageRows = 1000

// Read implements [store.Journal]. Events are in the order of their instants. One whose transaction
// is not committed when those of the same instant are read is missed.
func (s *Store) Read(ctx context.Context, want store.EventQuery, yield func(store.Event) bool) error {
	at, seq := want.From.Add(time.Microsecond-1).UnixMicro()-1, int64(1<<62)
	to := int64(1 << 62)
	if !want.To.IsZero() {
		to = want.To.Add(time.Microsecond - 1).UnixMicro()
	}
	var policy, tenant, name *string
	var op *int16
	var labels []string
	if want.Policy != "" {
		policy = &want.Policy
	}
	if want.Op != "" {
		n := int16(journal.Number(want.Op))
		op = &n
	}
	if want.Tenant != nil {
		t := text(*want.Tenant)
		tenant = &t
	}
	if want.Key != nil {
		n := text(*want.Key)
		name = &n
	}
	labels = shortened(labelTexts(want.Labels)) // the rest is compared by Match
	for {
		var page []store.Event
		n := 0
		err := s.query(ctx, "read", s.sql.read, []any{at, seq, to, policy, op, tenant, name, labels, pageRows},
			func(r pg.Row) error {
				n++
				e, takes, err := readEvent(r, &at, &seq)
				for range takes {
					page = append(page, e)
				}
				return err
			})
		if err != nil {
			return err
		}
		for i := range page {
			if want.Match(&page[i]) && !yield(page[i]) {
				return nil
			}
		}
		if n < pageRows {
			return nil
		}
	}
}

// readEvent reads a row of the history, and where it is.
func readEvent(r pg.Row, at, seq *int64) (e store.Event, takes int32, err error) {
	var op int16
	var units string
	var id *string
	var labels []string
	if err := r.Scan(seq, at, &op, &e.Key.Tenant, &e.Key.Policy, &e.Key.Name, &takes, &units, &id,
		&labels); err != nil {
		return e, 0, err
	}
	e.At, e.Op = time.UnixMicro(*at), "unknown"
	if name, known := journal.Name(int64(op)); known {
		e.Op = name
	}
	e.Key.Tenant, e.Key.Policy, e.Key.Name = untext(e.Key.Tenant), untext(e.Key.Policy), untext(e.Key.Name)
	e.Units = journal.ParseUnits(untext(units))
	if id != nil {
		e.ID = untext(*id)
	}
	for _, l := range labels {
		e.Labels = append(e.Labels, labelOf(l))
	}
	return e, takes, nil
}
