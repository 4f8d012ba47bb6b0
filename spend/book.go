package spend

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/drawgate/drawgate/internal/sampler"
	"github.com/drawgate/drawgate/store"
)

// Bounds of a day's meters, as one process counts them. What is beyond goes to meters whose model
// is Other.
const (
	MaxModels = 200 // of an upstream
	maxModel  = 100 // bytes of a model's name
	// Other is the model of calls beyond these bounds.
	Other = "(other)"
)

const (
	noteTime  = 50 * time.Millisecond // for a meter to be noted before its first call
	noteAgain = time.Second           // between tries after one has failed, and for each
	noteEvery = 10 * time.Minute      // again: a server that lost its data knows of no meter
	noteMost  = 1000                  // meters at a time
	logEvery  = time.Minute
)

// Book chooses the meters of calls, and notes them in the store. It is safe for concurrent use.
// Close it after the last call.
type Book struct {
	store store.Store
	index store.Indexer // nil: the store needs no index
	zone  *time.Location
	log   *slog.Logger
	ctx   context.Context //nolint:containedctx // of what is noted later
	stop  context.CancelFunc
	group sync.WaitGroup // of the goroutine that notes it

	mu     sync.Mutex
	day    string                     // guarded by mu: of the latest call
	noted  map[Meter]time.Time        // guarded by mu: when; of that day and the one before
	later  map[Meter]bool             // guarded by mu: to be noted; not empty while somebody does that
	models map[string]map[string]bool // guarded by mu: of that day, by upstream
	logged sampler.Sampler
}

// NewBook returns a Book for the meters in a store, whose days are those of zone. log may be nil.
func NewBook(s store.Store, zone *time.Location, log *slog.Logger) *Book {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	b := &Book{
		store: s, zone: zone, log: log, noted: map[Meter]time.Time{}, later: map[Meter]bool{},
		models: map[string]map[string]bool{},
	}
	b.index, _ = s.(store.Indexer)
	b.ctx, b.stop = context.WithCancel(context.Background())
	return b
}

// Close ends what is noted later. Then nothing of the book uses the store any more.
func (b *Book) Close() {
	b.stop()
	b.group.Wait()
}

// Meter returns the meter of a call that began at an instant: m with the day, and with Other as its
// model if there are too many. It notes a meter that is new, and one that is not now and then. If
// the store does not do that at once, the call goes on, and it is tried again until it succeeds.
func (b *Book) Meter(ctx context.Context, m Meter, began time.Time) Meter {
	m.Day = began.In(b.zone).Format(dayFormat)
	m, fresh := b.known(m)
	if !fresh || b.index == nil {
		return m
	}
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if err := b.note(ctx, m); err != nil {
		b.noteLater(m, err)
	}
	return m
}

// Zone returns the zone of the days.
func (b *Book) Zone() *time.Location { return b.zone }

// Read is [Read] for the book's store.
func (b *Book) Read(ctx context.Context, money string, first, last time.Time, key string) ([]Row, error) {
	return Read(ctx, b.store, money, first, last, key)
}

// note notes meters.
func (b *Book) note(ctx context.Context, list ...Meter) error {
	keys := make([]store.Key, len(list))
	for i := range list {
		tenant, key := list[i].Bucket()
		keys[i] = store.Key{Tenant: tenant, Policy: PolicyName, Name: key}
	}
	if err := b.index.Index(ctx, Keep+24*time.Hour, keys); err != nil {
		return err //nolint:wrapcheck // it is logged
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range list {
		b.noted[m] = time.Now()
		delete(b.later, m)
	}
	return nil
}

// noteLater has a meter noted as soon as the store does that.
func (b *Book) noteLater(m Meter, err error) {
	if skipped, ok := b.logged.Pass(time.Now(), logEvery, 1); ok {
		b.log.Warn("what calls spend is counted, but not listed until the store notes it: that is tried again every second",
			"upstream", m.Upstream, "error", err, "not_logged", skipped)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.later[m] = true
	if len(b.later) == 1 {
		b.group.Go(b.retry)
	}
}

// retry notes what is to be noted later.
func (b *Book) retry() {
	for {
		select {
		case <-b.ctx.Done():
			return
		case <-time.After(noteAgain):
		}
		b.mu.Lock()
		var list []Meter
		for m := range b.later {
			if list = append(list, m); len(list) == noteMost {
				break
			}
		}
		b.mu.Unlock()
		ctx, cancel := context.WithTimeout(b.ctx, noteAgain)
		_ = b.note(ctx, list...) // it was logged
		cancel()
		b.mu.Lock()
		done := len(b.later) == 0
		b.mu.Unlock()
		if done {
			return
		}
	}
}

// known bounds a meter's model, and reports whether it is time to note the meter: once, and not
// while that is tried again.
func (b *Book) known(m Meter) (_ Meter, note bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Day > b.day || m.Day < dayBefore(b.day) {
		for old := range b.noted {
			if old.Day != b.day { // calls of yesterday may still begin
				delete(b.noted, old)
			}
		}
		clear(b.models)
		b.day = m.Day
	}
	models := b.models[m.Upstream]
	if models == nil {
		models = map[string]bool{}
		b.models[m.Upstream] = models
	}
	if !models[m.Model] {
		if len(m.Model) > maxModel || len(models) >= MaxModels {
			m.Model = Other
		} else {
			models[m.Model] = true
		}
	}
	at, ok := b.noted[m]
	if ok && time.Since(at) < noteEvery || b.later[m] {
		return m, false
	}
	b.noted[m] = time.Now() // others need not note it, too
	return m, true
}

// dayBefore returns the day before another one; "" before none.
func dayBefore(day string) string {
	t, err := time.Parse(dayFormat, day)
	if err != nil {
		return ""
	}
	return t.AddDate(0, 0, -1).Format(dayFormat)
}
