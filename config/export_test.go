package config

import "time"

// ParseRules reads a file of rules alone.
func ParseRules(name string, data []byte) (*Config, []Problem) {
	c, problems := parseFile(name, data, (*decoder).rulesFile)
	if problems = append(problems, c.finish(len(problems) == 0)...); len(problems) > 0 {
		return nil, problems.sorted()
	}
	c.warn()
	c.trim()
	return c, nil
}

// ClosedWithin returns options with which Close waits for so long.
func (o WatchOptions) ClosedWithin(d time.Duration) *WatchOptions {
	o.closing = d
	return &o
}
