package server

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
)

// take serves POST /v1/take.
func (s *Server) take(w http.ResponseWriter, r *http.Request) {
	arrived := time.Now()
	var q api.TakeRequest
	if p := s.decode(w, r, &q); p != nil {
		writeProblem(w, p)
		return
	}
	if q.Takes == nil {
		s.patient(w, arrived, q.WaitMS)
		a, res, p := s.decide(r.Context(), arrived, &q.Take)
		if s.leave(r.Context(), res) {
			p = problem(api.CodeCancelled, "the client went away; nothing was spent")
		}
		if p != nil {
			writeProblem(w, p)
			return
		}
		writeJSON(w, http.StatusOK, api.TakeAnswer{Answer: &a})
		return
	}
	if p := checkBatch(&q); p != nil {
		writeProblem(w, p)
		return
	}
	s.patient(w, arrived, slices.MaxFunc(q.Takes, func(a, b api.Take) int { return cmp.Compare(a.WaitMS, b.WaitMS) }).WaitMS)
	answers := make([]api.Answer, len(q.Takes))
	held := make([]*drawgate.Reservation, len(q.Takes))
	for i := range q.Takes {
		answers[i], held[i], answers[i].Error = s.decide(r.Context(), arrived, &q.Takes[i])
	}
	s.leave(r.Context(), held...)
	writeJSON(w, http.StatusOK, api.TakeAnswer{Answers: answers})
}

// leaveTimeout bounds giving back what a client that went away was granted.
const leaveTimeout = 5 * time.Second

// leave gives holds back if the client is not there any more to settle them, and reports whether it did.
func (s *Server) leave(ctx context.Context, held ...*drawgate.Reservation) (left bool) {
	if ctx.Err() == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	for _, res := range held {
		if res == nil {
			continue
		}
		left = true
		if err := res.Cancel(ctx); err != nil && !errors.Is(err, drawgate.ErrGone) { // its hold will end, as used
			s.warn("what a client that went away holds was not given back", err)
		}
	}
	return left
}

func checkBatch(q *api.TakeRequest) *api.Problem {
	if n := len(q.Takes); n == 0 || n > api.MaxTakes {
		return problem(api.CodeInvalid, "takes has %d elements, not 1 to %d", n, api.MaxTakes)
	}
	t := &q.Take
	if named(&t.Bucket) || t.Buckets != nil || t.Priority != 0 || t.WaitMS != 0 || t.HoldMS != 0 || t.ID != "" || t.Labels != nil {
		return problem(api.CodeInvalid, "a batch has no other field than takes: give each take its own")
	}
	return nil
}

// patient lets the connection outlive a wait.
func (s *Server) patient(w http.ResponseWriter, arrived time.Time, waitMS int64) {
	if waitMS <= 0 {
		return
	}
	wait := min(time.Duration(min(waitMS, api.MaxWait.Milliseconds()))*time.Millisecond, api.MaxWait)
	c := http.NewResponseController(w)
	// A writer that knows no deadlines, as in tests, has none to move.
	_ = c.SetReadDeadline(time.Time{}) // it would end the wait: the server reads on to see whether the client is there
	_ = c.SetWriteDeadline(arrived.Add(wait + writeTimeout))
}

// ask is a take in the library's words.
type ask struct {
	l   *drawgate.Limiter // of the first bucket
	req drawgate.Request
	in  []api.Bucket // with every policy and key named
}

// decide decides one take. res is what it holds, if nobody but this client can know of it: who named an id may ask for it again, and have it.
func (s *Server) decide(ctx context.Context, arrived time.Time, t *api.Take) (out api.Answer, res *drawgate.Reservation, p *api.Problem) {
	a, p := s.ask(t)
	if p != nil {
		return out, nil, p
	}
	if a.req.Wait {
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		var end, stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		defer context.AfterFunc(s.drain, stop)() //nolint:contextcheck // it ends the wait, whose context is the request's
		ctx, end = context.WithDeadlineCause(ctx, arrived.Add(time.Duration(t.WaitMS)*time.Millisecond), drawgate.ErrDeadline)
		defer end()
	}
	if a.req.Hold == 0 {
		d, err := a.l.Take(ctx, a.req)
		if err != nil {
			out, p = s.refused(ctx, a, err)
			return out, nil, p
		}
		return Answer(&d, t.Priority), nil, nil
	}
	a.req.NoWait = !a.req.Wait
	res, err := a.l.ReserveRequest(ctx, a.req)
	if err != nil {
		out, p = s.refused(ctx, a, err)
		return out, nil, p
	}
	s.given.add(markOf(res.ID(), a.in))
	out = Answer(&res.Decision, t.Priority)
	out.HoldEnd = new(res.Deadline().UTC().Truncate(time.Millisecond))
	out.Reservation = newToken(res.ID(), res.Deadline(), a.in)
	if t.ID != "" {
		res = nil
	}
	return out, res, nil
}

// What a token of an unknown id and end is measured with: it is as long as those of rand.Text, and of the next centuries.
var (
	anID  = strings.Repeat("A", 26)
	anEnd = time.UnixMilli(1e13 - 1)
)

// ask checks what the library does not see.
func (s *Server) ask(t *api.Take) (*ask, *api.Problem) {
	a := &ask{in: t.Buckets}
	switch {
	case t.Buckets == nil:
		a.in = []api.Bucket{t.Bucket}
	case named(&t.Bucket):
		return nil, problem(api.CodeInvalid, "give either buckets, or one policy, key and costs")
	case len(t.Buckets) == 0:
		return nil, problem(api.CodeInvalid, "buckets is empty")
	}
	if t.ID != "" && t.HoldMS == 0 {
		return nil, problem(api.CodeInvalid, "an id needs hold_ms")
	}
	if t.WaitMS < 0 || t.WaitMS > api.MaxWait.Milliseconds() {
		return nil, problem(api.CodeInvalid, "wait_ms %d is not between 0 and %d", t.WaitMS, api.MaxWait.Milliseconds())
	}
	hold, p := holdOf("hold_ms", t.HoldMS)
	if p != nil && t.HoldMS != 0 {
		return nil, p
	}
	a.req = drawgate.Request{Wait: t.WaitMS > 0, Priority: t.Priority, Hold: hold, ID: t.ID}
	for _, k := range slices.Sorted(maps.Keys(t.Labels)) {
		a.req.Labels = append(a.req.Labels, drawgate.Label{Name: k, Value: t.Labels[k]})
	}
	if a.l, a.req.Buckets, a.in, p = s.buckets(a.in); p != nil {
		return nil, p
	}
	if hold > 0 {
		if n := len(newToken(cmp.Or(t.ID, anID), anEnd, a.in)); n > maxToken {
			return nil, problem(api.CodeTooLarge, "the reservation would have %d bytes, more than %d: use shorter keys", n, maxToken)
		}
	}
	return a, nil
}

func holdOf(field string, ms int64) (time.Duration, *api.Problem) {
	if ms < drawgate.MinHold.Milliseconds() || ms > drawgate.MaxHold.Milliseconds() {
		return 0, problem(api.CodeInvalid, "%s %d is not between %d and %d", field, ms, drawgate.MinHold.Milliseconds(), drawgate.MaxHold.Milliseconds())
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// buckets finds the limiters. full is in, with every policy and key named.
func (s *Server) buckets(in []api.Bucket) (first *drawgate.Limiter, asks []drawgate.Ask, full []api.Bucket, p *api.Problem) {
	for _, b := range in {
		l, p := s.limiter(b.Policy)
		if p != nil {
			return nil, nil, nil, p
		}
		if first == nil {
			first = l
		}
		b.Policy, b.Key = l.Plan().Name(), cmp.Or(b.Key, api.DefaultKey)
		asks, full = append(asks, l.Ask(b.Key, Costs(b.Costs)...)), append(full, b)
	}
	return first, asks, full, nil
}

func named(b *api.Bucket) bool { return b.Policy != "" || b.Key != "" || b.Costs != nil }

// Costs returns costs in the library's form, by unit.
func Costs(m map[string]int64) []drawgate.Cost {
	out := make([]drawgate.Cost, 0, len(m))
	for _, u := range slices.Sorted(maps.Keys(m)) {
		out = append(out, drawgate.Cost{Unit: u, N: m[u]})
	}
	return out
}

// refused answers a take that failed: with a refusal if it is one.
func (s *Server) refused(ctx context.Context, a *ask, err error) (api.Answer, *api.Problem) {
	out, ok, err := Refusal(ctx, a.l, &a.req, err)
	if !ok {
		return api.Answer{}, s.fail(err)
	}
	return out, nil
}
