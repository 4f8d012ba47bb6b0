package simulator

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Provider names the API that a quota is for.
type Provider string

// Dimension is what a limit counts.
type Dimension string

// The dimensions. What a call costs in each of them: see [Charging].
const (
	Requests     Dimension = "requests"
	InputTokens  Dimension = "input_tokens"
	OutputTokens Dimension = "output_tokens"
	Tokens       Dimension = "tokens" // OpenAI's: input and output together
	Images       Dimension = "images" // that are made
)

var dimensions = []Dimension{Requests, InputTokens, OutputTokens, Tokens, Images}

// Amounts are units by dimension.
type Amounts struct {
	Requests     int64 `json:"requests,omitempty"`
	InputTokens  int64 `json:"input_tokens,omitempty"`
	OutputTokens int64 `json:"output_tokens,omitempty"`
	Tokens       int64 `json:"tokens,omitempty"`
	Images       int64 `json:"images,omitempty"`
}

// Of returns the units of one dimension.
func (a Amounts) Of(d Dimension) int64 {
	switch d {
	case Requests:
		return a.Requests
	case InputTokens:
		return a.InputTokens
	case OutputTokens:
		return a.OutputTokens
	case Tokens:
		return a.Tokens
	case Images:
		return a.Images
	}
	return 0
}

func (a Amounts) plus(b Amounts) Amounts {
	return Amounts{
		a.Requests + b.Requests, a.InputTokens + b.InputTokens, a.OutputTokens + b.OutputTokens,
		a.Tokens + b.Tokens, a.Images + b.Images,
	}
}

// Window says how a limit counts over time.
type Window string

// The windows.
const (
	// Rolling admits at most Amount in every interval [t, t+Period).
	Rolling Window = "rolling"
	// Aligned admits at most Amount from one multiple of Period since 1970 to the next: with a
	// minute, from one second 00 to the next.
	Aligned Window = "aligned"
	// Day admits at most Amount per calendar day in Zone.
	Day Window = "day"
	// Month admits at most Amount per calendar month in Zone.
	Month Window = "month"
	// Bucket is a token bucket: it drains continuously by Amount per Period, and a call fits if
	// what is in it and the call are at most Burst together.
	Bucket Window = "bucket"
)

// Scope says whose calls share a limit.
type Scope string

// The scopes.
const (
	Organization Scope = "organization"
	Project      Scope = "project" // of one organization
)

// Limit is one rule: at most Amount units per window.
type Limit struct {
	// Name is unique in its quota, such as "rpm".
	Name string `json:"name"`
	// Dimension is what it counts.
	Dimension Dimension `json:"dimension"`
	// Amount is at least 0; 0 refuses every call, as Gemini does with models that a tier does not
	// have.
	Amount int64 `json:"amount"`
	// Window is how it counts over time.
	Window Window `json:"window"`
	// Period is the length of a rolling or aligned window, and the time in which a bucket drains by
	// Amount; 0 means a minute.
	Period time.Duration `json:"-"`
	// Burst is what a bucket can hold; 0 means Amount. Burst 1 with 60 per minute is one a second.
	Burst int64 `json:"burst,omitempty"`
	// Zone is the IANA time zone of days and months; "" means UTC.
	Zone string `json:"zone,omitempty"`
	// Scope is whose calls share it; "" means [Organization].
	Scope Scope `json:"scope,omitempty"`
}

// Quota is what some models of a provider may use.
type Quota struct {
	// Provider is whose models these are.
	Provider Provider `json:"provider"`
	// Name is unique among a provider's quotas, such as a model's or a family's.
	Name string `json:"name"`
	// Models are names of models, in which * stands for any characters but a slash. The first quota
	// with a name that fits decides about a call.
	Models []string `json:"models"`
	// Shared means that all these models share the limits. Otherwise each has its own.
	Shared bool `json:"shared,omitempty"`
	// FreeTier makes Gemini's refusals name the metrics of the free tier.
	FreeTier bool `json:"free_tier,omitempty"`
	// Limits must all fit. There may be none.
	Limits []Limit `json:"limits"`
}

// MaxAmount is the largest Amount and Burst of a limit.
const MaxAmount = 1_000_000_000_000

// check returns the limit with its defaults, and its time zone.
func (l Limit) check() (Limit, *time.Location, error) {
	if l.Period == 0 {
		l.Period = time.Minute
	}
	if l.Window == Bucket && l.Burst == 0 {
		l.Burst = l.Amount
	}
	if l.Scope == "" {
		l.Scope = Organization
	}
	zone, err := time.LoadLocation(l.Zone)
	switch {
	case l.Name == "":
		return l, nil, errors.New("a limit has no name: give it one, such as rpm")
	case err != nil || l.Zone == "Local":
		return l, nil, fmt.Errorf("limit %s: there is no time zone %q: give an IANA name, such as America/Los_Angeles",
			l.Name, l.Zone)
	case !slices.Contains(dimensions, l.Dimension):
		return l, nil, fmt.Errorf("limit %s: there is no dimension %q (have: %s)", l.Name, l.Dimension,
			list(dimensions))
	case !slices.Contains([]Window{Rolling, Aligned, Day, Month, Bucket}, l.Window):
		return l, nil, fmt.Errorf("limit %s: there is no window %q (have: rolling, aligned, day, month, bucket)",
			l.Name, l.Window)
	case l.Scope != Organization && l.Scope != Project:
		return l, nil, fmt.Errorf("limit %s: there is no scope %q (have: organization, project)", l.Name, l.Scope)
	case l.Amount < 0 || l.Amount > MaxAmount || l.Burst < 0 || l.Burst > MaxAmount:
		return l, nil, fmt.Errorf("limit %s: amount %d and burst %d must be from 0 to %d", l.Name, l.Amount, l.Burst,
			int64(MaxAmount))
	case l.Window != Bucket && l.Burst != 0:
		return l, nil, fmt.Errorf("limit %s: only buckets have a burst", l.Name)
	case l.Period < 0:
		return l, nil, fmt.Errorf("limit %s: the period %v is negative", l.Name, l.Period)
	}
	return l, zone, nil
}

// check returns what is wrong with a quota.
func (q Quota) check() error {
	fail := func(err error) error { return fmt.Errorf("simulator: quota %s of %s: %w", q.Name, q.Provider, err) }
	switch {
	case !slices.Contains(providers, q.Provider):
		return fmt.Errorf("simulator: quota %s: there is no provider %q (have: %s)", q.Name, q.Provider,
			list(providers))
	case q.Name == "":
		return fmt.Errorf("simulator: a quota of %s has no name: give it one", q.Provider)
	case len(q.Models) == 0:
		return fail(errors.New("it has no models: name some, or *"))
	}
	for _, pattern := range q.Models {
		if _, err := path.Match(pattern, ""); err != nil {
			return fail(fmt.Errorf("the model %q is not a pattern: %w", pattern, err))
		}
	}
	names := map[string]bool{}
	for _, l := range q.Limits {
		if _, _, err := l.check(); err != nil {
			return fail(err)
		}
		if names[l.Name] {
			return fail(fmt.Errorf("two limits are called %s", l.Name))
		}
		names[l.Name] = true
	}
	return nil
}

// fits reports whether a quota is for a model.
func (q Quota) fits(p Provider, model string) bool {
	return q.Provider == p && slices.ContainsFunc(q.Models, func(pattern string) bool {
		ok, err := path.Match(pattern, model)
		return ok && err == nil
	})
}

// Override changes the amount of a limit, named as QUOTA/LIMIT, such as gemini-2.5-flash/rpd. A
// bucket's burst changes with its amount if they were equal.
func Override(quotas []Quota, name string, amount int64) error {
	quota, limit, _ := strings.Cut(name, "/")
	for _, q := range quotas {
		if q.Name != quota {
			continue
		}
		for i := range q.Limits {
			if l := &q.Limits[i]; l.Name == limit {
				if l.Burst == l.Amount {
					l.Burst = 0
				}
				l.Amount = amount
				return nil
			}
		}
		return fmt.Errorf("simulator: quota %s has no limit %q (have: %s)", quota, limit, list(limitNames(q)))
	}
	return fmt.Errorf("simulator: there is no quota %q in %q (have: %s): name a limit as QUOTA/LIMIT, such as gemini-2.5-flash/rpd", quota, name, list(quotaNames(quotas)))
}

func limitNames(q Quota) (names []string) {
	for _, l := range q.Limits {
		names = append(names, l.Name)
	}
	return names
}

func quotaNames(quotas []Quota) (names []string) {
	for _, q := range quotas {
		names = append(names, q.Name)
	}
	return names
}

func list[S ~string](all []S) string {
	var b strings.Builder
	for i, s := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(s))
	}
	return b.String()
}
