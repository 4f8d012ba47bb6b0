package spend

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

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
	limitImages   = "images"
	limitMoney    = "money"
)

// limits are all of them.
var limits = [...]string{limitRequests, limitPrompt, limitAnswer, limitImages, limitMoney}

// Policy returns the policy of the meters. money is the unit of costs, such as "usd_micros"; with
// "" none are counted. All units of a meter count together for as long as it is kept, and its
// amounts are the largest that there are: it refuses nothing, also while the store is away.
func Policy(money string) drawgate.Policy {
	p := drawgate.Policy{Name: PolicyName, Fallback: drawgate.FallbackOpen}
	count := func(name, unit string) {
		p.Limits = append(p.Limits, drawgate.Limit{
			Name: name, Unit: unit, Kind: drawgate.Rolling, Amount: drawgate.MaxAmount, Window: Keep,
			Precision: store.MinPrecision, Charge: drawgate.ChargeEnd,
		})
	}
	count(limitRequests, drawgate.UnitRequests)
	count(limitPrompt, llm.UnitPromptTokens)
	count(limitAnswer, llm.UnitAnswerTokens)
	count(limitImages, llm.UnitImages)
	if money != "" {
		count(limitMoney, money)
	}
	return p
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
		parts[i] = url.PathEscape(parts[i])
	}
	return m.Day, strings.Join(parts[:], "/")
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
