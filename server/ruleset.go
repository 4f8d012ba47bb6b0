package server

import (
	"sync"

	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/rules"
)

// ruleSet is the rules in force, compiled to be asked without taking. It is safe for concurrent use.
type ruleSet struct {
	mu   sync.Mutex
	list []rules.Rule // guarded by mu: what set is of
	set  *rules.Set   // guarded by mu
}

// of returns the rules that e has in force.
func (c *ruleSet) of(e *engine.Engine) (*rules.Set, error) {
	list := e.Config().Rules
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set != nil && len(list) == len(c.list) && (len(list) == 0 || &list[0] == &c.list[0]) {
		return c.set, nil
	}
	set, err := rules.Compile(list, nil)
	if err != nil {
		return nil, err
	}
	c.list, c.set = list, set
	return set, nil
}
