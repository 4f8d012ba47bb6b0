package server

import (
	"errors"
	"fmt"

	"github.com/drawgate/drawgate"
)

// Limiters returns a limiter for each policy, by name. They share a store and a queue, and may be mixed in one take.
func Limiters(store drawgate.Store, policies []drawgate.Policy, opts *drawgate.Options) (map[string]*drawgate.Limiter, error) {
	all := make(map[string]*drawgate.Limiter, len(policies))
	var first *drawgate.Limiter
	for i := range policies {
		name := policies[i].Name
		if all[name] != nil {
			return nil, fmt.Errorf("drawgate: two policies are named %q", name)
		}
		var l *drawgate.Limiter
		var err error
		if first == nil {
			l, err = drawgate.New(store, policies[i], opts)
			first = l
		} else {
			l, err = first.With(policies[i])
		}
		if err != nil {
			return nil, err
		}
		all[name] = l
	}
	if first == nil {
		return nil, errors.New("drawgate: there is no policy")
	}
	return all, nil
}
