package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/web"
)

// What a key may ask about itself costs more than a call: bounds.
const (
	meEvery     = 2 * time.Second // an answer is given again for so long
	meTime      = 5 * time.Second // to read what is in the store
	meBuckets   = 64
	meReaders   = 8
	meStrangers = 100
	meAnswers   = 1000 // that are kept
	meWrongKey  = "(me)"
)

// answers are those that keys got lately.
type answers struct {
	mu   sync.Mutex
	last map[string]*lastAnswer // guarded by mu: by the key's name
}

// lastAnswer is used by whoever has sent to turn, and not received from it yet.
type lastAnswer struct {
	turn chan struct{}
	from string    // address and host of who asked: rules see them
	key  *Key      // as it was then. That of a token is another one each time
	at   time.Time // zero if there is none
	body []byte
	err  error // why there is no body
}

// of returns the latest answer of a key, or an empty one.
func (a *answers) of(key string) *lastAnswer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last == nil || a.last[key] == nil && len(a.last) >= meAnswers {
		a.last = map[string]*lastAnswer{}
	}
	if a.last[key] == nil {
		a.last[key] = &lastAnswer{turn: make(chan struct{}, 1)}
	}
	return a.last[key]
}

// itself serves the paths of the gateway itself, and reports whether a request is for one.
func (h *Handler) itself(w http.ResponseWriter, r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case r.URL.Path == api.PathMe:
		h.me(w, r)
	case reads && (r.URL.Path == web.Path || strings.HasPrefix(r.URL.Path, web.KeysParts)):
		page.ServeHTTP(w, r)
	default:
		return false
	}
	return true
}

// page shows people what a key may know.
var page = web.ForKeys()

// me serves GET [api.PathMe]: what a key may use, and what it has used. It says nothing of other
// keys, but that what a limit counts together is one number.
func (h *Handler) me(w http.ResponseWriter, r *http.Request) {
	s := h.state.Load()
	k, why := s.caller(r)
	if why == nil {
		why = k.refuseAddress(h.client(r))
	}
	switch {
	case why != nil && (why.kind == llm.Unavailable || why.kind == llm.Overloaded): // it may be a right one
		w.Header().Set("Retry-After", strconv.FormatInt(int64(why.after.Seconds()), 10))
		writeProblem(w, present.Problemf(api.CodeStoreUnavailable, "%s", why.message))
		return
	case why != nil:
		h.wrongKey(meWrongKey, k, why, r)
		writeProblem(w, meProblem(why))
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		writeProblem(w, present.Problemf(api.CodeBadMethod, "this is read with GET"))
		return
	}
	body, err := h.answer(r, s, k)
	if err != nil {
		h.warn("a key was not told about itself", "key", k.Name, "error", err)
		w.Header().Set("Retry-After", "1")
		writeProblem(w, present.Problem(err))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(body) // whoever has left needs no answer
}

// answer returns the latest answer for a key, or why there was none, or makes a new one. Requests
// of one key wait for each other, so that they do not read the same at once.
func (h *Handler) answer(r *http.Request, s *state, k *Key) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), meTime)
	defer cancel()
	last := h.answers.of(k.Name)
	select {
	case last.turn <- struct{}{}:
		defer func() { <-last.turn }()
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // the caller has left, or those before it take long
	}
	from := h.client(r).String() + " " + r.Host
	if last.from == from && reflect.DeepEqual(last.key, k) && time.Since(last.at) < meEvery {
		return last.body, last.err
	}
	out, err := h.about(ctx, r, s, k)
	if r.Context().Err() != nil {
		return nil, err // others do not fail because this one has left
	}
	last.body = nil
	if err == nil {
		last.body, err = json.Marshal(out)
	}
	last.from, last.key, last.at, last.err = from, k, time.Now(), err
	return last.body, err
}

// meProblem returns why a key learns nothing.
func meProblem(why *refusal) *api.Problem {
	code := api.CodeUnauthorized
	if why.kind == llm.Forbidden {
		code = api.CodeForbidden
	}
	p := present.Problemf(code, "%s", why.message)
	p.Title = "The key is not accepted"
	return p
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	h := w.Header()
	h.Set("Content-Type", api.ProblemType)
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // whoever has left needs no answer
}

// about says what a key may use, and what it has used.
func (h *Handler) about(ctx context.Context, r *http.Request, s *state, k *Key) (*api.MeAnswer, error) {
	now := time.Now().UTC()
	out := &api.MeAnswer{
		At: now, Key: k.Name, Team: k.Team, Priority: k.Priority,
		Upstreams: []api.MeUpstream{}, Aliases: []string{},
	}
	const lastYear = 9999 // that JSON can tell: some issuers write milliseconds
	if end := k.end(); !end.IsZero() && end.UTC().Year() <= lastYear {
		out.Until = &end
	}
	for i := range s.config.Upstreams {
		u := &s.config.Upstreams[i]
		if models := k.usable(u); len(models) > 0 {
			out.Upstreams = append(out.Upstreams, api.MeUpstream{
				Name: u.Name, Provider: u.Profile.Name, Models: models,
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.aliases)) {
		if s.mayCall(k, s.aliases[name]) {
			out.Aliases = append(out.Aliases, name)
		}
	}
	var err error
	if out.Limits, err = h.limitsOf(ctx, r, s, k); err != nil {
		return nil, err
	}
	if out.Spend, err = h.spentBy(ctx, s, k, now); err != nil {
		return nil, err
	}
	out.Waiting, out.Refusals = h.journal.of(k.Name, now)
	return out, nil
}

// usable returns the models of an upstream that a key may use: where the key's patterns are
// narrower than the upstream's, those.
func (k *Key) usable(u *Upstream) (models []string) {
	for i := range u.Models {
		name := u.Models[i].Name
		if k.may(u.Name, name) {
			models = append(models, name)
			continue
		}
		for _, p := range k.Models {
			of, ok := strings.CutPrefix(p, u.Name+"/")
			if ok && u.model(strings.TrimSuffix(of, "*")) == &u.Models[i] && !slices.Contains(models, of) {
				models = append(models, of)
			}
		}
	}
	return models
}

// mayCall reports whether a key may use an alias, for one of its accounts at least.
func (s *state) mayCall(k *Key, a *Alias) bool {
	return slices.Contains(k.Models, a.Name) || slices.ContainsFunc(a.Models, func(t Target) bool {
		return k.may(t.Upstream, t.Model)
	})
}

// limitsOf returns the limits that count calls of a key but not those of other teams: a bucket that
// these would be counted in as well says what they do.
func (h *Handler) limitsOf(ctx context.Context, r *http.Request, s *state, k *Key) ([]api.MeLimit, error) {
	mate := *k
	mate.Name, mate.User = nobody, nobody
	mine, err := h.countedFor(r, s, k, k)
	if err != nil {
		return nil, err
	}
	ofTeam, err := h.countedFor(r, s, k, &mate)
	if err != nil {
		return nil, err
	}
	for _, other := range s.others(k) {
		of, err := h.countedFor(r, s, k, other)
		if err != nil {
			return nil, err
		}
		for b := range of {
			delete(mine, b)
		}
	}
	list := slices.Collect(maps.Values(mine))
	slices.SortFunc(list, func(a, b engine.Applied) int {
		return strings.Compare(a.Policy+"\x00"+a.Tenant+"\x00"+a.Key, b.Policy+"\x00"+b.Tenant+"\x00"+b.Key)
	})
	list = list[:min(len(list), meBuckets)]
	return h.readLimits(ctx, list, k.Priority, ofTeam)
}

// strangers returns keys whose use a key must not learn of: those that are in nothing like it, or
// in their class alone, and of each other team one.
func (s *state) others(k *Key) []*Key {
	classmate := &Key{Name: nobody, User: nobody, Team: nobody, Class: k.Class}
	list := []*Key{{Name: nobody, User: nobody, Team: nobody, Class: nobody}, classmate}
	teams := map[string]bool{k.team(): true}
	add := func(other *Key) bool {
		if team := other.team(); !teams[team] && len(list) < meStrangers {
			teams[team] = true
			list = append(list, other)
		}
		return len(list) < meStrangers
	}
	for i := range s.config.Keys {
		add(&s.config.Keys[i])
	}
	s.stored.each(add)
	return list
}

// nobody is the name of no key.
const nobody = "(nobody)"

// bucketOf names a bucket.
type bucketOf struct{ policy, tenant, key string }

// countedFor returns the buckets in which calls of a key to what may uses are counted, as rules see
// the key as.
func (h *Handler) countedFor(r *http.Request, s *state, may, as *Key) (map[bucketOf]engine.Applied, error) {
	all := map[bucketOf]engine.Applied{}
	for _, t := range s.targets(may) {
		profile := s.upstreams[t.Upstream].config.Profile
		res, err := h.engine.Match(&rules.Attributes{
			Method: http.MethodPost, Path: "/" + t.Upstream, Host: r.Host, IP: h.client(r), User: as.User,
			Class: as.Class,
			Extra: map[string]string{
				"key": as.Name, "team": as.Team, "user": as.User, "upstream": t.Upstream, "provider": profile.Name,
				"model": t.Model, "family": profile.Family(t.Model).Name, "operation": string(llm.OpChat),
			},
		})
		if err != nil {
			return nil, err
		}
		for _, a := range res.Applied {
			if !a.Shadow && !a.Disabled {
				all[bucketOf{a.Policy, a.Tenant, a.Key}] = a
			}
		}
	}
	return all, nil
}

// targets returns the models that a key may use, without the * of patterns.
func (s *state) targets(k *Key) (list []Target) {
	for i := range s.config.Upstreams {
		u := &s.config.Upstreams[i]
		for _, model := range k.usable(u) {
			list = append(list, Target{Upstream: u.Name, Model: strings.TrimSuffix(model, "*")})
		}
	}
	for name, a := range s.aliases {
		if slices.Contains(k.Models, name) {
			list = append(list, a.Models...)
		}
	}
	return list
}

// readLimits reads what is used of buckets.
func (h *Handler) readLimits(ctx context.Context, list []engine.Applied, priority int,
	ofTeam map[bucketOf]engine.Applied,
) ([]api.MeLimit, error) {
	read := make([][]api.MeLimit, len(list))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(meReaders)
	for i := range list {
		g.Go(func() error {
			a := &list[i]
			ask, err := h.engine.AskApplied(a)
			if errors.Is(err, engine.ErrUnknownPolicy) {
				return nil // it has gone since
			}
			if err != nil {
				return err
			}
			st, err := ask.Status(ctx, priority)
			if err != nil {
				return err
			}
			_, shared := ofTeam[bucketOf{a.Policy, a.Tenant, a.Key}]
			read[i] = limitsIn(a.Policy, &st, shared)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return append([]api.MeLimit{}, slices.Concat(read...)...), nil
}

func limitsIn(policy string, st *drawgate.Status, shared bool) (list []api.MeLimit) {
	status := present.Status(policy, "", st)
	for i := range status.Limits {
		l := api.MeLimit{LimitStatus: status.Limits[i], Team: shared, Paused: status.Paused}
		if l.Every == drawgate.Total.String() {
			l.WindowEnd = nil // it does not end
		} else {
			l.ResetAt = &l.LimitStatus.ResetAt
		}
		list = append(list, l)
	}
	return list
}

// spentBy returns what a key spent this month.
func (h *Handler) spentBy(ctx context.Context, s *state, k *Key, now time.Time) (*api.SpendAnswer, error) {
	book := h.opts.Spend
	if book == nil {
		return nil, nil //nolint:nilnil // nothing counts it
	}
	money := ""
	if s.config.Prices != nil {
		money = s.config.Prices.Unit()
	}
	first, last := present.ThisMonth(now.In(book.Zone()))
	rows, err := book.Read(ctx, money, first, last, k.Name)
	if errors.Is(err, spend.ErrCannotList) {
		return nil, nil //nolint:nilnil // as above
	}
	if err != nil {
		return nil, err
	}
	q := present.SpendQuery{First: first, Last: last, By: []string{"upstream", "model"}}
	out := present.Spend(rows, &q, book.Zone(), money)
	return &out, nil
}
