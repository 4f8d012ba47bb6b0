package gateway

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drawgate/drawgate/api"
)

// Bounds of what is kept for keys that ask for it.
const (
	keptRefusals = 20   // of a key
	keptKeys     = 1000 // with refusals
	keptMessage  = 300  // bytes
)

// journal keeps what keys are told about their calls: which wait, and which were refused lately.
type journal struct {
	mu      sync.Mutex
	waiting map[*ask]waiting     // guarded by mu
	refused map[string]*refusals // guarded by mu: by the key's name
}

// waiting is a call that waits.
type waiting struct {
	key, upstream, model string
	since                time.Time
}

// refusals are the latest of a key.
type refusals struct {
	list []api.MeRefusal // the latest last
}

// waits notes that a call waits, until the result is called.
func (j *journal) waits(a *ask, w waiting) (ended func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.waiting == nil {
		j.waiting = map[*ask]waiting{}
	}
	j.waiting[a] = w
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		delete(j.waiting, a)
	}
}

// refuses notes a refusal. If there are too many keys, the one whose last refusal is the longest
// ago is forgotten.
func (j *journal) refuses(key string, r api.MeRefusal) {
	if len(r.Message) > keptMessage {
		r.Message = strings.ToValidUTF8(r.Message[:keptMessage], "") + "…"
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.refused == nil {
		j.refused = map[string]*refusals{}
	}
	of := j.refused[key]
	if of == nil {
		if len(j.refused) >= keptKeys {
			delete(j.refused, j.oldest())
		}
		of = &refusals{}
		j.refused[key] = of
	}
	if len(of.list) == keptRefusals {
		of.list = slices.Delete(of.list, 0, 1)
	}
	of.list = append(of.list, r)
}

// oldest returns the key whose last refusal is the longest ago. mu is held.
func (j *journal) oldest() (key string) {
	var at time.Time
	for k, of := range j.refused {
		if last := of.list[len(of.list)-1].At; key == "" || last.Before(at) {
			key, at = k, last
		}
	}
	return key
}

// of returns what is kept of a key: those that have waited longest, and the latest refusals, first.
func (j *journal) of(key string, now time.Time) (wait []api.MeWaiting, refused []api.MeRefusal) {
	wait, refused = []api.MeWaiting{}, []api.MeRefusal{}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, w := range j.waiting {
		if w.key == key {
			wait = append(wait, api.MeWaiting{
				Upstream: w.upstream, Model: w.model, WaitedMS: now.Sub(w.since).Milliseconds(),
			})
		}
	}
	slices.SortFunc(wait, func(a, b api.MeWaiting) int { return int(b.WaitedMS - a.WaitedMS) })
	if of := j.refused[key]; of != nil {
		refused = slices.Clone(of.list)
		slices.Reverse(refused)
	}
	return wait, refused
}
