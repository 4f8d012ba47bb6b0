package config

import (
	"fmt"

	"github.com/drawgate/drawgate"
)

// caution is a warning about a limit that works but is perhaps not intended.
type caution struct{ key, message, hint string }

// cautions returns the warnings about a limit, which must be valid.
func cautions(l *drawgate.Limit) (list []caution) {
	if l.Amount == 0 {
		return nil // nothing passes, which is intended
	}
	if l.Kind == drawgate.Bucket {
		list = append(list, burstCaution(l)...)
	}
	list = append(list, shareCaution("headroom", "headroom", l.Headroom, l.Amount)...)
	for p := 1; p <= drawgate.MaxPriority; p++ {
		list = append(list, shareCaution("keep", fmt.Sprintf("keep for priority %d", p), l.ReservedByPriority[p],
			l.Amount)...)
	}
	if most(l, 0) == 0 { // the lowest priority gets least
		list = append(list, caution{
			key:     "keep",
			message: "nothing is left for takes of priority 0: they can never pass",
		})
	}
	return list
}

// most returns how many units of a valid limit takes of a priority may use in all.
func most(l *drawgate.Limit, priority int) int64 {
	plan, err := drawgate.Policy{Name: "a", Limits: []drawgate.Limit{*l}}.Compile()
	if err != nil {
		return -1
	}
	return plan.Max(0, priority)
}

// burstCaution warns about buckets that may admit twice their amount, because a hard cap may have
// been intended.
func burstCaution(l *drawgate.Limit) []caution {
	burst := l.Burst
	if burst == 0 {
		burst = l.Amount
	}
	if burst < l.Amount {
		return nil
	}
	return []caution{{
		key: "burst",
		message: fmt.Sprintf("a bucket of %d per %s with burst %d admits up to %d within one such period",
			l.Amount, formatDuration(l.Window), burst, burst+l.Amount),
		hint: "if that must never happen, use rolling or a smaller burst",
	}}
}

func shareCaution(key, what string, s drawgate.Share, amount int64) []caution {
	if s.Percent == 0 || s.Percent*float64(amount) >= 100 {
		return nil
	}
	return []caution{{key: key, message: fmt.Sprintf("%s: %s of %d is less than one unit and is rounded up to 1", what,
		s, amount)}}
}
