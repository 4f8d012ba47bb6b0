package redisstore_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/redisstore"
)

// TestSilentServer: a server that takes connections and says nothing keeps callers no longer than
// they will wait, new connections included; one that was slow to greet is used as soon as it does.
//
// req: C12, E7
func TestSilentServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	p := redistest.NewProxy(t, server.Addr)
	s, err := redisstore.Open("redis://"+p.Addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan := day(t, 1000)
	take(t, s, takeOf(plan, "k", 1))
	server.Stop()
	p.Cut()
	var wg sync.WaitGroup
	late := make([]time.Duration, 20)
	for i := range late {
		wg.Go(func() {
			time.Sleep(time.Duration(i) * 10 * time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), 40*time.Millisecond)
			defer cancel()
			// when somebody else saw the deadline: a machine that stood still kept that one, too
			over := make(chan time.Time, 1)
			go func() { <-ctx.Done(); over <- time.Now() }()
			if tryTake(ctx, s, takeOf(plan, "k", 1)) == nil {
				t.Error("a server that stands still has answered")
			}
			ended := time.Now()
			late[i] = ended.Sub(<-over)
		})
	}
	wg.Wait()
	server.Continue()
	most := time.Duration(0)
	for _, d := range late {
		most = max(most, d)
	}
	t.Logf("the slowest of %d calls ended %v after its deadline", len(late), most)
	if most > 500*time.Millisecond { // it was a second
		t.Errorf("a call ended %v after its deadline", most)
	}
	comesBack(t, s, plan, 1)
}

// TestSocket dials a server by its socket.
func TestSocket(t *testing.T) {
	t.Parallel()
	path := t.TempDir() + "/redis.sock"
	redistest.Start(t, "--unixsocket", path)
	if c, err := net.Dial("unix", path); err != nil {
		t.Fatal(err)
	} else {
		c.Close()
	}
	s, err := redisstore.Open("unix://"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if d := take(t, s, takeOf(day(t, 5), "k", 1)); !d.Allowed {
		t.Error(d.Fail)
	}
}
