package incident

import (
	"slices"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/outbound"
)

// Bounds of what is remembered.
const (
	keepTakes = 512              // calls to an upstream
	showTakes = 50               // calls that an incident shows
	keepTime  = 10 * time.Minute // how far back they go
)

// rings are the recent calls by upstream.
type rings struct {
	mu sync.Mutex
	of map[string]*ring // guarded by mu
}

// ring returns the recent calls to an upstream. Those of upstreams that are not called any more,
// such as one that a reload has removed, are forgotten.
func (s *rings) ring(upstream string, now time.Time) *ring {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.of[upstream]; r != nil {
		return r
	}
	for name, r := range s.of {
		if r.idle(now) {
			delete(s.of, name)
		}
	}
	r := &ring{}
	s.of[upstream] = r
	return r
}

// ring has the recent calls to an upstream.
type ring struct {
	mu       sync.Mutex
	takes    []take // guarded by mu: at most keepTakes; next is the oldest one if there are so many
	next     int    // guarded by mu
	underWay int    // guarded by mu
}

// take is a call that was granted.
type take struct {
	id                      uint64
	granted, sent, answered time.Time
	model                   string
	priority                int
	queued                  time.Duration
	estimate, used          []drawgate.Cost
	policy, limit           string // the tightest one
	remaining               int64
	outcome                 outbound.Outcome
	ended                   bool
}

func (r *ring) idle(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.takes {
		if t := &r.takes[i]; now.Sub(t.granted) < keepTime || !t.ended {
			return false
		}
	}
	return true
}

// begin notes that a call was granted.
func (r *ring) begin(e *outbound.Event) {
	t := take{
		id: e.ID, granted: e.Granted, model: e.Model, priority: e.Priority, queued: e.Queued,
		estimate: slices.Clone(e.Estimate),
	}
	if l, ok := e.Decision.Tightest(); ok {
		t.policy, t.limit, t.remaining = l.Policy, l.Limit.Name, l.Remaining
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.underWay++
	if len(r.takes) < keepTakes {
		r.takes = append(r.takes, t)
		return
	}
	r.takes[r.next] = t
	r.next = (r.next + 1) % keepTakes
}

// end notes that a call has ended. It returns how many were under way before.
func (r *ring) end(e *outbound.Event) (underWay int) {
	used := slices.Clone(e.Used)
	r.mu.Lock()
	defer r.mu.Unlock()
	underWay = r.underWay
	r.underWay = max(0, r.underWay-1) // the call may have begun before somebody began to watch
	// An upstream that a reload has changed counts its calls from 1 again: the instant tells them
	// apart.
	for i := range r.takes {
		if t := &r.takes[len(r.takes)-1-i]; t.id == e.ID && t.granted.Equal(e.Granted) && !t.ended {
			t.ended, t.sent, t.answered, t.used, t.outcome = true, e.Sent, e.Answered, used, e.Outcome
			break
		}
	}
	return max(1, underWay)
}

// show returns the latest calls, the newest last, and the sum of those of a model that were granted
// in the minute before an instant.
func (r *ring) show(model string, at time.Time) (list []api.IncidentTake, sum api.IncidentSum) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.takes {
		t := &r.takes[(r.next+i)%len(r.takes)]
		age := at.Sub(t.granted)
		if i == 0 && age < time.Minute && len(r.takes) == keepTakes {
			sum.AtLeast = true
		}
		if unsent := t.ended && t.sent.IsZero(); age < time.Minute && t.model == model && !unsent {
			t.addTo(&sum)
		}
		if i >= len(r.takes)-showTakes && age < keepTime {
			list = append(list, t.wire())
		}
	}
	return list, sum
}

func (t *take) addTo(sum *api.IncidentSum) {
	sum.Calls++
	costs := t.used
	if costs == nil {
		costs = t.estimate
	}
	for _, c := range costs {
		if sum.Costs == nil {
			sum.Costs = api.Costs{}
		}
		sum.Costs[unit(c.Unit)] += c.N
	}
}

func (t *take) wire() api.IncidentTake {
	w := api.IncidentTake{
		Granted: t.granted.UTC(), Sent: instant(t.sent), Answered: instant(t.answered), Model: short(t.model),
		Priority: t.priority,
		QueuedMS: t.queued.Milliseconds(), Estimate: costs(t.estimate), Used: costs(t.used), Remaining: t.remaining,
		Outcome: api.OutcomeUnderWay,
	}
	if t.limit != "" {
		w.Limit = t.policy + "/" + t.limit
	}
	if t.ended {
		w.Outcome = t.outcome.String()
	}
	return w
}
