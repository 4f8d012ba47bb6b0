package config

import (
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"
)

const (
	maxDepth      = 1_000_000_000
	maxAttempts   = 1000
	maxMultiplier = 100
)

// Queue is for programs that have their own queue of tasks: how long it may get, and when to retry.
// Limits do not depend on it.
type Queue struct {
	MaxDepth    int           // maximum number of tasks in the queue; 0 means 50
	RetryDelay  time.Duration // the delay before a task that could not run is tried again; 0 means 60s
	MaxAttempts int           // how many times it is tried; 0 means 3
	Multiplier  float64       // what the delay is multiplied by after each attempt; 0 means 2
}

var queueSection = &section[Queue]{name: "queue", what: "queue", noted: "queue", settings: (*Queue).settings}

func (q *Queue) settings() []setting {
	return []setting{
		{"max_depth", number[int](1, maxDepth).to(&q.MaxDepth), "50", "the most tasks in the queue"},
		{"retry_delay", between(time.Millisecond, maxStep).to(&q.RetryDelay), "60s", "after this time a task that " +
			"could not run is tried again"},
		{"max_attempts", number[int](1, maxAttempts).to(&q.MaxAttempts), "3", "how many times a task is tried"},
		{"multiplier", asMultiplier.to(&q.Multiplier), "2", "what the delay is multiplied by after each attempt"},
	}
}

var asMultiplier = form[float64]{
	read: (*decoder).multiplier, bounds: number[int](1, maxMultiplier).bounds,
	node: func(f float64) (n node) {
		if f != 0 {
			n.scalar = strconv.FormatFloat(f, 'f', -1, 64)
		}
		return n
	},
	schema: schema{"type": "number", "minimum": 1, "maximum": maxMultiplier},
}

func (d *decoder) multiplier(e entry) float64 {
	switch n := e.value.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		if f, ok := parseMultiplier(n.GetToken().Value); ok {
			return f
		}
		d.problem(spanOf(n), "", "%s %s is not between 1 and %d", e.key, n.GetToken().Value, maxMultiplier)
	default:
		d.problem(spanOf(n), "such as 2 or 1.5", "%s must be a number, not %s", e.key, describe(n))
	}
	return 0
}

func parseMultiplier(text string) (float64, bool) {
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil && decimals().MatchString(text) && f >= 1 && f <= maxMultiplier
}

// warnQueue warns of settings that only other programs read. QUEUE_MAX_DEPTH also sets the queue
// length of a policy.
func (c *Config) warnQueue() {
	hint := "to limit how many callers wait for a policy, set wait: {queue: …} in it"
	for _, key := range []string{"max_depth", "retry_delay", "max_attempts", "multiplier"} {
		setting := "queue." + key
		if from, said := c.origins[setting]; said && from != c.origins[waitSetting("task")] {
			c.warnOf(setting, hint,
				"%s has no effect by itself: only programs with a task queue use it, if they read this setting from the configuration", setting)
		}
		hint = ""
	}
}
