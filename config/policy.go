package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/store"
)

// Bounds of the wait settings.
const (
	maxQueue   = 1_000_000
	maxBackoff = 32
	maxStep    = 24 * time.Hour
)

func (d *decoder) policies(e entry) {
	entries, _ := d.entries(e.value, "policies")
	for _, e := range entries {
		before := len(d.problems)
		p, mode := d.policy(e)
		// Everything was checked before, with better positions. This makes sure that every policy
		// that is returned compiles.
		if _, err := p.Compile(); err != nil && len(d.problems) == before && !d.partial {
			d.problem(e.at, "", "%s", err)
		}
		if len(d.problems) > before || d.partial {
			d.config.broken = append(d.config.broken, e.key)
			continue
		}
		d.config.Policies = append(d.config.Policies, p)
		d.config.setMode(p.Name, mode)
		d.origin(policySetting(p.Name), e.at)
	}
}

func (d *decoder) policy(e entry) (p drawgate.Policy, m Mode) {
	p.Name = e.key
	switch {
	case e.key == "" || len(e.key) > maxName:
		d.problem(e.at, "", "a policy needs a name of 1 to %d bytes", maxName)
	case strings.HasSuffix(e.key, engine.ShadowSuffix):
		d.problem(e.at, "choose another one", "names of policies that end with %q are reserved for rules in shadow", engine.ShadowSuffix)
	case strings.HasPrefix(e.key, engine.OwnPrefix):
		d.problem(e.at, "choose another one", "names of policies that begin with %q are reserved", engine.OwnPrefix)
	}
	what := "policy " + shorten(e.key)
	if _, ok := e.value.(*ast.NullNode); ok {
		d.missing(e.at, "", "%s is empty: it needs limits", what)
		return p, m
	}
	before := len(d.problems)
	var overrides *entry
	seen := d.object(e.value, what, append([]field{
		{"limits", func(e entry) { p.Limits = d.limits(p.Name, e) }},
		{"wait", func(e entry) { p.Wait = d.wait(p.Name, e) }},
	}, d.noted(policySetting(p.Name), []field{
		{"fallback", func(e entry) { p.Fallback = d.fallback(e) }},
		{"start", func(e entry) { p.Start = d.start(e) }},
		{"shadow", func(e entry) { m.Shadow = d.boolean(e) }},
		{"disabled", func(e entry) { m.Disabled = d.boolean(e) }},
		{"overrides", func(e entry) { overrides = &e }},
	})...))
	if !seen["limits"] && len(d.problems) == before {
		d.missing(e.at, "", "%s has no limits", what)
	}
	if overrides != nil {
		m.Overrides = d.overrides(p, *overrides)
	}
	return p, m
}

// fallback reads what happens while the store is unavailable.
func (d *decoder) fallback(e entry) drawgate.Fallback {
	switch d.oneOf(e, "closed", "share", "open") {
	case "closed":
		return drawgate.FallbackClosed
	case "share":
		return drawgate.FallbackShare
	case "open":
		return drawgate.FallbackOpen
	}
	return drawgate.FallbackDefault
}

// start reads what a process admits that starts while the store is unavailable.
func (d *decoder) start(e entry) drawgate.Start {
	switch d.oneOf(e, "closed", "cold", "full") {
	case "closed":
		return drawgate.StartClosed
	case "cold":
		return drawgate.StartCold
	case "full":
		return drawgate.StartFull
	}
	return drawgate.StartDefault
}

// defaultStart sets how policies start that do not say it themselves.
func (d *decoder) defaultStart(e entry, s drawgate.Start) {
	if before := d.config.Start; before != drawgate.StartDefault && s != drawgate.StartDefault && before != s {
		d.problem(spanOf(e.value), "leave start_full out", "start_full: true means start: full, but start is not full")
	}
	d.config.Start = s
}

func (d *decoder) limits(policy string, e entry) (limits []drawgate.Limit) {
	list, ok := e.value.(*ast.SequenceNode)
	if _, empty := e.value.(*ast.NullNode); empty {
		d.missing(spanOf(e.value), "", "limits is empty: a policy has 1 to %d", store.MaxLimits)
		return nil
	}
	if !ok {
		d.problem(spanOf(e.value), "write one \"- {name: …, …}\" per limit", "limits must be a list, not %s", describe(e.value))
		return nil
	}
	if len(list.Values) == 0 {
		d.missing(spanOf(list), "", "limits is empty: a policy has 1 to %d", store.MaxLimits)
	}
	first := map[string]int{}
	for i, n := range list.Values {
		if i == store.MaxLimits {
			d.problem(spanOf(n), "a take can name several policies", "a policy has at most %d limits", store.MaxLimits)
		}
		l := d.limit(n)
		if line := first[l.Name]; line != 0 && l.Name != "" {
			d.problem(l.at["name"], fmt.Sprintf("the first one is on line %d", line), "limit name %q is used twice in this policy", l.Name)
		} else {
			first[l.Name] = l.start.Line
		}
		d.origin(limitSetting(policy, l.Name), l.start)
		limits = append(limits, l.Limit)
	}
	return limits
}

func (d *decoder) wait(policy string, e entry) (w drawgate.Wait) {
	d.origin(waitSetting(policy), e.at)
	d.object(e.value, "wait", []field{
		{"up_to", func(e entry) {
			w.MaxWait = d.duration(e)
			if w.MaxWait == 0 {
				d.rangeProblem(e, "up_to", "leave it out if the policy should set no bound", "more than 0")
			}
		}},
		{"queue", func(e entry) { w.Queue = int(d.integer(e, 1, maxQueue)) }},
		{"backoff", func(e entry) { w.Backoff = d.backoff(e) }},
		{"barge", func(e entry) { w.Barge = d.boolean(e) }},
	})
	return w
}

func (d *decoder) backoff(e entry) (steps []time.Duration) {
	list, ok := e.value.(*ast.SequenceNode)
	if !ok {
		d.problem(spanOf(e.value), "such as [2s, 4s, 8s]", "backoff must be a list of durations, not %s", describe(e.value))
		return nil
	}
	if n := len(list.Values); n == 0 || n > maxBackoff {
		d.problem(spanOf(list), "", "backoff has %d steps, not 1 to %d", n, maxBackoff)
		return nil
	}
	for _, n := range list.Values {
		step := entry{"a step of backoff", spanOf(n), n}
		wait := d.duration(step)
		if wait < time.Millisecond || wait > maxStep {
			d.rangeProblem(step, step.key, "", "between 1ms and 24h")
		}
		steps = append(steps, wait)
	}
	return steps
}
