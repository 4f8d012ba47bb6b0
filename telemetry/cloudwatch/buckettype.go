package cloudwatch

import (
	"time"

	"github.com/drawgate/drawgate"
)

// kind is what [BucketType] tells apart by unit and window.
type kind uint8

const (
	requestsPerMinute kind = iota
	tokensPerMinute
	requestsPerDay
	named // by the limit's name
)

var kindNames = [named]string{"RPM", "TPM", "RPD"}

// kindOf returns the kind of a limit, by itself.
func kindOf(l *drawgate.Limit) kind {
	minute, day := false, false
	switch l.Kind {
	case drawgate.Bucket, drawgate.Rolling:
		minute, day = l.Window == time.Minute, l.Window == 24*time.Hour
	case drawgate.Calendar:
		minute, day = l.Every == drawgate.Minute, l.Every == drawgate.Day
	case drawgate.Concurrency:
	}
	switch requests := l.Unit == "" || l.Unit == drawgate.UnitRequests; {
	case requests && minute:
		return requestsPerMinute
	case requests && day:
		return requestsPerDay
	case minute && (l.Unit == "tokens" || l.Unit == "input_tokens"):
		return tokensPerMinute
	}
	return named
}

// kinds are those of the limits of one policy that were looked at, as a set of bits.
type kinds uint8

// next returns the kind of a policy's next limit. A policy has one limit of each kind: another one,
// such as a bucket beside a rolling limit, goes by its name, so that no unit is counted twice.
func (s *kinds) next(l *drawgate.Limit) kind {
	k := kindOf(l)
	if k == named || *s&(1<<k) != 0 {
		return named
	}
	*s |= 1 << k
	return k
}

// BucketType returns the value of the dimension BucketType for limit i of a policy:
//
//   - RPM for the policy's first limit of requests in a minute, of whatever kind: a bucket that is
//     refilled in a minute, a rolling minute, or a minute of the calendar;
//   - TPM for its first limit of the unit "tokens" or "input_tokens" in a minute: some providers
//     count both, others only what they read;
//   - RPD for its first limit of requests in a day: 24 hours, or a day of the calendar;
//   - the limit's name for every other one.
func BucketType(p *drawgate.Policy, i int) string {
	var seen kinds
	k := named
	for j := range p.Limits[:i+1] {
		k = seen.next(&p.Limits[j])
	}
	if k == named {
		return dimensionValue(p.Limits[i].Name)
	}
	return kindNames[k]
}
