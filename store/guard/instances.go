package guard

import (
	"github.com/drawgate/drawgate/internal/instances"
	"github.com/drawgate/drawgate/store"
)

// sharing knows the number of processes that share the limits.
type sharing struct {
	fixed   int                // 0: unknown
	counter *instances.Counter // nil: they are not counted
}

// start begins to count instances, if configured.
func (s *sharing) start(o *Options, store func() store.Store, uncounted func(error)) {
	s.fixed = o.Instances
	if !o.CountInstances {
		return
	}
	c, err := instances.Start(store, &instances.Options{
		AtLeast: o.Instances, InCalls: o.CountInCalls,
		Report: uncounted,
	})
	if err != nil { // the policy of the slots does not compile
		uncounted(err)
		return
	}
	s.counter = c
}

func (s *sharing) close() {
	if s.counter != nil {
		s.counter.Close()
	}
}

// share returns the number of processes that a share is divided by, 0 if it is unknown, and whether
// this process may admit its share.
func (s *sharing) share() (n int, ok bool) {
	if s.counter == nil {
		return s.fixed, true
	}
	return s.counter.Share()
}

// call has this process counted, if that is due. It returns a channel that is closed when it is
// done, or nil.
func (s *sharing) call() <-chan struct{} {
	if s.counter == nil {
		return nil
	}
	return s.counter.Call()
}

// unavailable notes that the guard starts to decide takes.
func (s *sharing) unavailable() {
	if s.counter != nil {
		s.counter.Unavailable()
	}
}
