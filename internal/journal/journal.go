// Package journal is how stores write their history down: numbers of operations, amounts as text,
// and labels of pauses.
package journal

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// The operations. The numbers are stored and never change.
const (
	Take = iota
	Settle
	Cancel
	Charge
	Expire
	Refund
	Pause
	Unpause
)

var names = [...]string{"take", "settle", "cancel", "charge", "expire", "refund", "pause", "unpause"}

// Name returns the name of an operation; false: there is none of this number.
func Name(op int64) (string, bool) {
	if op < 0 || op >= int64(len(names)) {
		return "", false
	}
	return names[op], true
}

// Number returns the number of an operation, or -1.
func Number(name string) int { return slices.Index(names[:], name) }

// Units writes amounts as "requests=1 tokens=250": one amount per unit, the largest if several
// limits have that unit. Limits of the kind skip are left out.
func Units(limits []store.Limit, n store.Amounts, skip store.Kind) string {
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

// ParseUnits reads what [Units] wrote.
func ParseUnits(text string) (units []store.Cost) {
	for f := range strings.FieldsSeq(text) {
		unit, n, _ := strings.Cut(f, "=")
		v, _ := strconv.ParseInt(n, 10, 64)
		units = append(units, store.Cost{Unit: unit, N: v})
	}
	return units
}

// Settled returns what a settlement used of an open reservation.
func Settled(bc *store.BucketCost, open *record.Open) string {
	var n store.Amounts
	specs := store.Internal.Specs(bc.Plan, false)
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
	return Units(bc.Plan.Policy().Limits, n, 0)
}

// Charged returns what a charge counted. Concurrency limits ignore charges.
func Charged(bc *store.BucketCost) string {
	return Units(bc.Plan.Policy().Limits, bc.N, store.Concurrency)
}

// PauseLabels returns the labels of an event that begins or ends a pause: the caller's, until when
// the pause lasts or would have lasted, and why.
func PauseLabels(st *store.Settlement, p *record.Pause) []store.Label {
	labels := append(slices.Clone(st.Labels), store.Label{
		Name:  "until",
		Value: time.UnixMicro(p.Until).UTC().Format(time.RFC3339Nano),
	})
	if st.Reason != "" {
		labels = append(labels, store.Label{Name: "reason", Value: st.Reason})
	}
	return labels
}
