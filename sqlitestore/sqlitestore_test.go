package sqlitestore_test

import (
	"sync"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/sqlitestore"
	"github.com/drawgate/drawgate/storetest"
)

// req: A8 B1 C1 D1 D2 D5 D11 D12
func TestStore(t *testing.T) {
	t.Parallel()
	type home struct {
		path  string
		clock *clock
	}
	var homes sync.Map // of stores
	storetest.Run(t, storetest.Harness{
		New: func(t *testing.T) drawgate.Store {
			h := home{dbPath(t), newClock()}
			s := openAt(t, h.path, &sqlitestore.Options{Synchronous: sqlitestore.Normal}, h.clock)
			homes.Store(s, h)
			return s
		},
		Advance: func(s drawgate.Store, d time.Duration) {
			h, _ := homes.Load(s)
			h.(home).clock.advance(d)
		},
		Second: func(t *testing.T, s drawgate.Store) drawgate.Store {
			v, _ := homes.Load(s)
			h := v.(home)
			second := openAt(t, h.path, &sqlitestore.Options{Synchronous: sqlitestore.Normal}, h.clock)
			homes.Store(second, h)
			return second
		},
	})
}
