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
	noteTime  = 500 * time.Millisecond // to note a meter in the store
	noteEvery = 10 * time.Minute       // again: a server that lost its data knows of no meter
	logEvery  = time.Minute
)

// Book chooses the meters of calls, and notes them in the store. It is safe for concurrent use.
type Book struct {
	index store.Indexer // nil: the store needs no index
	zone  *time.Location
	log   *slog.Logger

	mu     sync.Mutex
	day    string                     // guarded by mu: of the latest call
	noted  map[Meter]time.Time        // guarded by mu: when; of that day and the one before
	models map[string]map[string]bool // guarded by mu: of that day, by upstream
	logged sampler.Sampler            // guarded by mu
}

// NewBook returns a Book for the meters in a store, whose days are those of zone. log may be nil.
func NewBook(s store.Store, zone *time.Location, log *slog.Logger) *Book {
	index, _ := s.(store.Indexer)
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Book{
		index: index, zone: zone, log: log, noted: map[Meter]time.Time{}, models: map[string]map[string]bool{},
	}
}

// Meter returns the meter of a call that began at an instant: m with the day, and with Other as its
// model if there are too many. It notes meters that are new, and now and then
// those that are not. If that fails, the call counts all the same,
// and its meter is noted with the next call.
func (b *Book) Meter(ctx context.Context, m Meter, began time.Time) Meter {
	m.Day = began.In(b.zone).Format(dayFormat)
	m, noted := b.known(m)
	if noted || b.index == nil {
		return m
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	tenant, key := m.Bucket()
	err := b.index.Index(ctx, Keep+24*time.Hour, []store.Key{{Tenant: tenant, Policy: PolicyName, Name: key}})
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		b.noted[m] = time.Now()
	} else if skipped, ok := b.logged.Pass(time.Now(), logEvery, 1); ok {
		b.log.Warn("what calls spend is counted, but cannot be listed yet: the store did not note the meter; it is tried again with the next call",
			"upstream", m.Upstream, "error", err, "not_logged", skipped)
	}
	return m
}

// known bounds a meter's model, and reports whether the meter was noted.
func (b *Book) known(m Meter) (Meter, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.Day > b.day {
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
	return m, ok && time.Since(at) < noteEvery
}
