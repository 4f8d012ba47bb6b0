package drawgate_test

import (
	"errors"
	"fmt"
	"os"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// This function is in docs/configuration.md: TestConfigurationPage compares them.

func open(cfg *config.Config) (store drawgate.Store, limiters map[string]*drawgate.Limiter, err error) {
	if path, ok := config.SQLitePath(cfg.Store); ok {
		store, err = sqlitestore.Open(path, nil)
	} else if cfg.Store == config.Memory {
		store = memstore.New(nil)
	} else {
		store, err = redisstore.Open(cfg.Store, &redisstore.Options{Prefix: cfg.Prefix})
	}
	if err != nil {
		return nil, nil, err
	}
	limiters = map[string]*drawgate.Limiter{}
	var one *drawgate.Limiter
	for _, p := range cfg.Policies {
		if one == nil {
			one, err = drawgate.New(store, p, nil)
		} else {
			one, err = one.With(p) // the same store and queue: they may be mixed in one take
		}
		if err != nil {
			return nil, nil, errors.Join(err, store.Close())
		}
		limiters[p.Name] = one
	}
	return store, limiters, nil
}

// From a file, or the environment, to a store and limiters.
func Example_config() {
	cfg, err := config.Resolve([]string{"RATE_LIMIT_PER_DAY=400", "DRAWGATE_STORE=memory:"}, config.Flags{}) // a program passes os.Environ()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	store, limiters, err := open(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = store.Close() }()
	fmt.Println(limiters["multi-tier"].Plan().Policy().Limits[2].Amount)
	// Output: 400
}
