package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// Bounds on cancellations in the background.
const (
	giveUpTimeout = 5*time.Second + store.SendLife
	maxGiveUps    = 256 // at once; the caller carries out a further one, before its answer
)

// giveUps cancels in the background what nobody will settle.
type giveUps struct {
	slots chan struct{}
	mu    sync.Mutex
	group sync.WaitGroup
	over  bool // guarded by mu: nothing more is started in the background
}

func newGiveUps() *giveUps { return &giveUps{slots: make(chan struct{}, maxGiveUps)} }

// run runs f in the background, or directly if too much is running there.
func (g *giveUps) run(f func()) {
	g.mu.Lock()
	if !g.over {
		select {
		case g.slots <- struct{}{}:
			g.group.Go(func() {
				defer func() { <-g.slots }()
				f()
			})
			g.mu.Unlock()
			return
		default:
		}
	}
	g.mu.Unlock()
	f()
}

// wait returns when nothing is running any more.
func (g *giveUps) wait() {
	g.mu.Lock()
	g.over = true
	g.mu.Unlock()
	g.group.Wait()
}

// giveBack cancels a hold that no client knows.
func (s *Server) giveBack(ctx context.Context, res *engine.Result) {
	own := *res // the caller reuses it
	s.cancelLater(ctx, own.Cancel)
}

// cancelLater cancels in the background, even if ctx has ended.
func (s *Server) cancelLater(ctx context.Context, how func(context.Context) error) {
	ctx = context.WithoutCancel(ctx)
	s.giveUps.run(func() {
		ctx, cancel := context.WithTimeout(ctx, giveUpTimeout)
		defer cancel()
		if err := how(ctx); err != nil && !errors.Is(err, drawgate.ErrGone) { // its hold will end, as used
			s.warn(&s.warned.giveUp, "a reservation that nobody will settle was not given back", err)
		}
	})
}
