package simulator

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// FaultKind is what goes wrong.
type FaultKind string

// The faults. Those of the first group refuse a call that the quota would have let pass; what a
// provider has no answer of its own for is answered as its nearest.
const (
	FaultMinute FaultKind = "minute" // 429 as by a limit per minute
	// 429 as by a limit per day; Gemini's says to retry within seconds, which is wrong.
	FaultDay       FaultKind = "day"
	FaultCredit    FaultKind = "credit"    // the credit is used up: OpenAI's 429 insufficient_quota, Anthropic's 400
	FaultSpendCap  FaultKind = "spend_cap" // the month's spending is capped: Anthropic's 429 without retry-after
	FaultTransient FaultKind = "transient" // 429 without details
	FaultOverload  FaultKind = "overload"  // 503; Anthropic's 529

	FaultInternal    FaultKind = "500" // an internal error
	FaultBadGateway  FaultKind = "502" // a page of HTML, by a proxy in front of the API
	FaultUnavailable FaultKind = "503"
	FaultOverloaded  FaultKind = "529"

	FaultLatency FaultKind = "latency" // the answer begins Delay later
	FaultClose   FaultKind = "close"   // the connection is closed before the answer
	// FaultCut resets the connection after After chunks of a stream, and in the middle of the body
	// of any other answer.
	FaultCut FaultKind = "cut"
	// FaultErrorEvent ends a stream after After chunks with an event that is an error. Other
	// answers are internal errors.
	FaultErrorEvent FaultKind = "error_event"
	// FaultStall sends nothing for Delay after After chunks; without Delay, for ever. Other answers
	// do not begin.
	FaultStall       FaultKind = "stall"
	FaultNoUsage     FaultKind = "no_usage"     // the answer does not say what was used
	FaultContentType FaultKind = "content_type" // the answer says that it is plain text
	// FaultEndless never ends a stream, whatever the request allows. Another answer begins with
	// spaces that do not end.
	FaultEndless FaultKind = "endless"
	FaultGzip    FaultKind = "gzip" // the answer is compressed, if the client accepts that
)

var faultKinds = []FaultKind{
	FaultMinute, FaultDay, FaultCredit, FaultSpendCap, FaultTransient, FaultOverload,
	FaultInternal, FaultBadGateway, FaultUnavailable, FaultOverloaded,
	FaultLatency, FaultClose, FaultCut, FaultErrorEvent, FaultStall, FaultNoUsage, FaultContentType, FaultEndless,
	FaultGzip,
}

// FaultKinds returns all kinds of faults.
func FaultKinds() []FaultKind { return slices.Clone(faultKinds) }

// Fault is one thing that goes wrong, for some calls. Quotas come first: a call that finds a limit
// full is refused for that.
type Fault struct {
	// Kind is what goes wrong.
	Kind FaultKind `json:"kind"`
	// Rate is the share of calls that are hit, from 0 to 1. It is ignored in [Server.Inject].
	Rate float64 `json:"rate,omitempty"`
	// Times is how many calls are hit by a fault of [Server.Inject]; 0 means 1.
	Times int `json:"times,omitempty"`
	// Delay is how long the answer is delayed, or stalls.
	Delay time.Duration `json:"-"`
	// After is how many chunks of a stream are sent before.
	After int `json:"after,omitempty"`
	// Provider and Model limit the fault to the calls of one; "" means all.
	Provider Provider `json:"provider,omitempty"`
	Model    string   `json:"model,omitempty"`
}

// MaxInjected is how many faults can wait for calls.
const MaxInjected = 10_000

func (f Fault) check() error {
	switch {
	case !slices.Contains(faultKinds, f.Kind):
		return fmt.Errorf("simulator: there is no fault %q (have: %s)", f.Kind, list(faultKinds))
	case f.Rate < 0 || f.Rate > 1:
		return fmt.Errorf("simulator: fault %s: the rate %v is not from 0 to 1", f.Kind, f.Rate)
	case f.Times < 0 || f.Delay < 0 || f.After < 0:
		return fmt.Errorf("simulator: fault %s: times %d, delay %v and after %d must not be negative", f.Kind, f.Times,
			f.Delay, f.After)
	case f.Kind == FaultLatency && f.Delay == 0:
		return errors.New("simulator: fault latency needs a delay, such as 2s")
	case f.Provider != "" && !slices.Contains(providers, f.Provider):
		return fmt.Errorf("simulator: fault %s: there is no provider %q (have: %s)", f.Kind, f.Provider,
			list(providers))
	}
	return nil
}

func (f Fault) hits(p Provider, model string) bool {
	return (f.Provider == "" || f.Provider == p) && (f.Model == "" || f.Model == model)
}

// faults chooses the fault of each call.
type faults struct {
	random *rand.Rand
	rated  []Fault
	queue  []Fault
}

func newFaults(rated []Fault, seed uint64) *faults {
	return &faults{random: rand.New(rand.NewPCG(seed, 0)), rated: rated} //nolint:gosec // it need not be hard to guess
}

// next returns the fault of a call: the first injected one that is for such calls, or else the
// first that its rate chooses. Each rate draws one number per call, so that the same seed and the
// same order of calls give the same faults.
func (f *faults) next(p Provider, model string) (chosen Fault) {
	for _, r := range f.rated {
		if n := f.random.Float64(); chosen.Kind == "" && n < r.Rate && r.hits(p, model) {
			chosen = r
		}
	}
	for i := range f.queue {
		q := &f.queue[i]
		if !q.hits(p, model) {
			continue
		}
		chosen = *q
		if q.Times--; q.Times <= 0 {
			f.queue = slices.Delete(f.queue, i, i+1)
		}
		break
	}
	return chosen
}

// ParseFaults reads the JSON of a fault or of a list of faults, such as
//
//	[{"kind": "cut", "after": 2}, {"kind": "latency", "delay": "2s", "rate": 0.1}]
func ParseFaults(text []byte) (faults []Fault, err error) {
	text = bytes.TrimSpace(text)
	if bytes.HasPrefix(text, []byte("[")) {
		err = strict(text, &faults)
	} else {
		faults = make([]Fault, 1)
		err = strict(text, &faults[0])
	}
	if err != nil {
		return nil, fmt.Errorf("simulator: the faults cannot be read: %w", err)
	}
	for _, f := range faults {
		if err := f.check(); err != nil {
			return nil, err
		}
	}
	return faults, nil
}

// ParseRates reads faults by rate in a short form: KIND=RATE, separated by commas, with a delay if
// there is one, such as "overload=0.01,latency=0.1:2s".
func ParseRates(text string) (faults []Fault, err error) {
	for word := range strings.SplitSeq(text, ",") {
		kind, rest, _ := strings.Cut(strings.TrimSpace(word), "=")
		rate, delay, delayed := strings.Cut(rest, ":")
		f := Fault{Kind: FaultKind(kind)}
		if f.Rate, err = strconv.ParseFloat(rate, 64); err != nil {
			return nil, fmt.Errorf("simulator: the fault %q has no rate: write it as KIND=RATE, such as overload=0.01",
				word)
		}
		if delayed {
			if f.Delay, err = time.ParseDuration(delay); err != nil {
				return nil, fmt.Errorf("simulator: the delay of the fault %q is no duration: write it as latency=0.1:2s", word)
			}
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		faults = append(faults, f)
	}
	return faults, nil
}

// UnmarshalJSON reads a fault, with its delay as text such as "2s".
func (f *Fault) UnmarshalJSON(text []byte) error {
	type plain Fault
	v := struct {
		*plain
		Delay Duration `json:"delay"`
	}{plain: (*plain)(f)}
	if err := strict(text, &v); err != nil {
		return err
	}
	f.Delay = time.Duration(v.Delay)
	return nil
}

// MarshalJSON is the reverse of UnmarshalJSON.
func (f Fault) MarshalJSON() ([]byte, error) {
	type plain Fault
	return json.Marshal(struct {
		plain
		Delay Duration `json:"delay,omitempty"`
	}{plain(f), Duration(f.Delay)})
}
