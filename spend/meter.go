package spend

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/store"
)

// PolicyName is the name of the policy whose buckets are the meters.
const PolicyName = store.OwnPolicies + "spend"

// Keep is how long a meter is kept after it was last used.
const Keep = 366 * 24 * time.Hour

// Names of the policy's limits.
const (
	limitRequests = "requests"
	limitPrompt   = "prompt"
	limitAnswer   = "answer"
	limitWhole    = "whole" // units of the currency
	limitRest     = "rest"  // and millionths of one
)

// Units of the limits. They are no other policy's.
const (
	unitRequests = "metered_requests"
	unitPrompt   = "metered_prompt_tokens"
	unitAnswer   = "metered_answer_tokens"
	wholeSuffix  = "_whole"
	restSuffix   = "_rest"
	microsSuffix = "_micros"
)

// The most that one call counts as, of tokens of each kind and of whole units of the currency: what
// a caller asks for without end is no use of anything.
const (
	mostTokens = 100_000_000
	mostWhole  = 100_000_000
	million    = 1_000_000
)

// Policy returns the policy of the meters. money is the unit of costs, such as "usd_micros"; with
// "" none are counted. All units of a meter count together for as long as it is kept, and its
// amounts are the largest that there are.
func Policy(money string) drawgate.Policy {
	p := drawgate.Policy{Name: PolicyName, Fallback: drawgate.FallbackOpen}
	count := func(name, unit string) {
		p.Limits = append(p.Limits, drawgate.Limit{
			Name: name, Unit: unit, Kind: drawgate.Rolling, Amount: drawgate.MaxAmount, Window: Keep,
			Precision: store.MinPrecision, Charge: drawgate.ChargeEnd,
		})
	}
	count(limitRequests, unitRequests)
	count(limitPrompt, unitPrompt)
	count(limitAnswer, unitAnswer)
	if currency, ok := strings.CutSuffix(money, microsSuffix); ok {
		count(limitWhole, currency+wholeSuffix)
		count(limitRest, currency+restSuffix)
	}
	return p
}

// Costs returns what a meter counts of a call's costs, in its units. Without any it is one request.
func Costs(costs []drawgate.Cost) (list []drawgate.Cost) {
	if costs == nil {
		return []drawgate.Cost{drawgate.Units(unitRequests, 1)}
	}
	for _, c := range costs {
		n := max(0, c.N)
		switch currency, isMoney := strings.CutSuffix(c.Unit, microsSuffix); {
		case c.Unit == "" || c.Unit == drawgate.UnitRequests:
			list = append(list, drawgate.Units(unitRequests, n))
		case c.Unit == llm.UnitPromptTokens:
			list = append(list, drawgate.Units(unitPrompt, min(n, mostTokens)))
		case c.Unit == llm.UnitAnswerTokens:
			list = append(list, drawgate.Units(unitAnswer, min(n, mostTokens)))
		case isMoney:
			list = append(list, drawgate.Units(currency+wholeSuffix, min(n/million, mostWhole)),
				drawgate.Units(currency+restSuffix, n%million))
		}
	}
	return list
}

// Meter is what is counted together.
type Meter struct {
	Day      string // on which calls began, such as 2026-11-28
	Team     string // "" for keys without one
	Key      string // name of the virtual key
	Upstream string
	Model    string
}

// dayFormat is how a day is written.
const dayFormat = time.DateOnly

// Bucket returns the tenant and the key of the meter's bucket.
func (m *Meter) Bucket() (tenant, key string) {
	parts := [...]string{m.Team, m.Key, m.Upstream, m.Model}
	for i := range parts {
		parts[i] = escaped(parts[i])
	}
	return m.Day, strings.Join(parts[:], "/")
}

// mostEscaped is how long a part of a key is, so that the key is not too long for a bucket.
const mostEscaped = 60

// escaped writes a name as a part of a key. A long one is cut, and told from others by a sum, which
// no name can look like.
func escaped(name string) string {
	part := strings.ReplaceAll(url.PathEscape(name), "~", "%7E")
	if len(part) <= mostEscaped {
		return part
	}
	sum := sha256.Sum256([]byte(name))
	end := "~" + hex.EncodeToString(sum[:16])
	for cut := strings.ToValidUTF8(name, "?"); ; {
		_, size := utf8.DecodeLastRuneInString(cut)
		cut = cut[:len(cut)-size]
		part = strings.ReplaceAll(url.PathEscape(cut), "~", "%7E")
		if len(part)+len(end) <= mostEscaped {
			return part + end
		}
	}
}

// named returns the meter with its names as its bucket has them: a long one is cut.
func (m *Meter) named() Meter {
	tenant, key := m.Bucket()
	n, err := meterOf(tenant, key)
	if err != nil {
		return *m
	}
	return n
}

// isMeter reports whether a bucket is a meter of a key, or of any key if that is "". What was cut
// of a long name is compared as it is in the bucket: another name may look like it.
func isMeter(bucket, key string) bool {
	parts := strings.Split(bucket, "/")
	if len(parts) != 4 || key != "" && parts[1] != escaped(key) {
		return false
	}
	_, err := meterOf("", bucket)
	return err == nil
}

// meterOf returns the meter of a bucket.
func meterOf(tenant, key string) (m Meter, err error) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 {
		return m, fmt.Errorf("spend: %.80q is no meter", key)
	}
	for i := range parts {
		if parts[i], err = url.PathUnescape(parts[i]); err != nil {
			return m, fmt.Errorf("spend: %.80q is no meter: %w", key, err)
		}
	}
	return Meter{tenant, parts[0], parts[1], parts[2], parts[3]}, nil
}

// compare orders meters by day, team, key, upstream and model.
func (m *Meter) compare(o *Meter) int {
	return slices.Compare([]string{m.Day, m.Team, m.Key, m.Upstream, m.Model},
		[]string{o.Day, o.Team, o.Key, o.Upstream, o.Model})
}
