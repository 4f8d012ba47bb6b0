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
		d.problem(e.at, "choose another one", "names of policies that end with %q are reserved for rules in shadow",
			engine.ShadowSuffix)
	case strings.HasPrefix(e.key, engine.OwnPrefix):
		d.problem(e.at, "choose another one", "names of policies that begin with %q are reserved", engine.OwnPrefix)
	}
	what := "policy " + shorten(e.key)
	if _, ok := e.value.(*ast.NullNode); ok {
		d.missing(e.at, "", "%s is empty: it needs limits", what)
		return p, m
	}
	before := len(d.problems)
	var overrides entry
	seen := d.object(e.value, what, policySettings(&p, &m, &overrides), d.noted(policySetting(p.Name)))
	if !seen["limits"] && len(d.problems) == before {
		d.missing(e.at, "", "%s has no limits", what)
	}
	if overrides.value != nil {
		m.Overrides = d.overrides(p, overrides)
	}
	return p, m
}

// policies returns the value of the policies.
func (c *Config) policies() value {
	return value{
		read: (*decoder).policies,
		node: func() (n node) {
			for i := range c.Policies {
				p := &c.Policies[i]
				m := c.Modes[p.Name]
				n.pairs = append(n.pairs, pair{quote(p.Name), settingsNode(policySettings(p, &m, nil))})
			}
			return n
		},
		schema: schema{
			"type": "object", "propertyNames": schema{"minLength": 1, "maxLength": maxName},
			"additionalProperties": define("policy", nil,
				func() []setting { return policySettings(&policy{}, &Mode{}, nil) }),
		},
	}
}

// policySettings returns the settings of a policy. The overrides are read later, from the entry:
// they depend on the limits.
func policySettings(p *drawgate.Policy, m *Mode, overrides *entry) []setting {
	limits := many(limitSection, store.MaxLimits).to(&p.Limits).
		by(func(d *decoder, e entry) { p.Limits = d.limits(p.Name, e) })
	wait := waitSection.to(&p.Wait).by(func(d *decoder, e entry) {
		d.origin(waitSetting(p.Name), e.at)
		waitSection.read(d, e, &p.Wait)
	})
	others := many(overrideSection, maxOverrides).to(&m.Overrides).
		by(func(_ *decoder, e entry) { *overrides = e })
	return []setting{
		{"limits", limits, required, "1 to 6 limits, which must all pass; their names are unique. A take that one of " +
			"them refuses costs nothing in the others ([below](#a-limit))"},
		{"wait", wait, "", "how callers wait ([below](#wait))"},
		{"fallback", asFallback.to(&p.Fallback), "`share`", "what its limits admit while the store is unavailable, " +
			"unless they set it themselves: nothing (`closed`), the amount divided by `instances`, in each process " +
			"(`share`), everything (`open`). [More](#fallback)"},
		{"start", asStart.to(&p.Start), "`start` at the top", "what a process admits of its share that starts while " +
			"the store is unavailable, and so does not know what was used: nothing (`closed`), a part (`cold`), all " +
			"of it (`full`, only on SQLite with `instances: 1`; otherwise `cold`). [More](#start)"},
		{"start_full", value{read: func(d *decoder, e entry) {
			d.problem(e.at, "write start: full", "start_full is a setting of the file, and no policy has it")
		}}.retired(), "", ""},
		{"leased", asFlag.to(&p.Leased), no, "processes take units from the store ahead, for up to half a second, and " +
			"decide with these by themselves: never over, but `Remaining` is approximate. For limits that are asked " +
			"for often. Windows last at least 1s; no concurrency limit. [More](#leased)"},
		{"shadow", asFlag.to(&m.Shadow), no, "the policy is evaluated and reported with buckets of its own, never " +
			"enforced"},
		{"disabled", asFlag.to(&m.Disabled), no, "the policy is switched off from the start, and left out of every " +
			"take"},
		{"overrides", others, none, "other amounts for some keys. The most specific one decides ([below](#overrides))"},
	}
}

var (
	// asFallback is what happens while the store is unavailable.
	asFallback = numbered[drawgate.Fallback]("closed", "share", "open")
	// asStart is what a process admits that starts while the store is unavailable.
	asStart = numbered[drawgate.Start]("closed", "cold", "full")
)

// defaultStart reads how policies start that do not say it themselves.
func (d *decoder) defaultStart(e entry) drawgate.Start { return d.oneStart(e, asStart.read(d, e)) }

// startFull reads start_full: true, which means start: full.
func (d *decoder) startFull(e entry) {
	if d.boolean(e) {
		d.config.Start = d.oneStart(e, drawgate.StartFull)
		d.origin("start", spanOf(e.value))
	}
}

// oneStart makes sure that start and start_full say the same.
func (d *decoder) oneStart(e entry, s drawgate.Start) drawgate.Start {
	if before := d.config.Start; before != drawgate.StartDefault && s != drawgate.StartDefault && before != s {
		d.problem(spanOf(e.value), "leave start_full out", "start_full: true means start: full, but start is not full")
	}
	return s
}

func (d *decoder) limits(policy string, e entry) (limits []drawgate.Limit) {
	list, ok := e.value.(*ast.SequenceNode)
	if _, empty := e.value.(*ast.NullNode); empty {
		d.missing(spanOf(e.value), "", "limits is empty: a policy has 1 to %d", store.MaxLimits)
		return nil
	}
	if !ok {
		d.problem(spanOf(e.value), "write one \"- {name: …, …}\" per limit", "limits must be a list, not %s",
			describe(e.value))
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
			d.problem(l.at["name"], fmt.Sprintf("the first one is on line %d", line),
				"limit name %q is used twice in this policy", l.Name)
		} else {
			first[l.Name] = l.start.Line
		}
		d.origin(limitSetting(policy, l.Name), l.start)
		limits = append(limits, l.Limit)
	}
	return limits
}

var waitSection = &section[drawgate.Wait]{name: "wait", what: "wait", settings: waitSettings}

func waitSettings(w *drawgate.Wait) []setting {
	upTo := func(d *decoder, e entry) time.Duration {
		t := d.duration(e)
		if t == 0 {
			d.rangeProblem(e, "up_to", "leave it out if the policy should set no bound", "more than 0")
		}
		return t
	}
	return []setting{
		{"up_to", bounded(readBy(asDuration, upTo), "more than 0").to(&w.MaxWait), "no bound", "the longest wait, if " +
			"the caller has no earlier deadline. If it is shorter than the window and the margin of a limit, takes " +
			"behind a burst are refused at once; `validate` warns about that"},
		{"queue", number[int](1, maxQueue).to(&w.Queue), "10,000", "the most waiters per bucket and process. Further " +
			"callers are refused at once"},
		{"backoff", asBackoff.to(&w.Backoff), "", "fixed pauses between attempts (the last one is repeated), instead " +
			"of waiting until the take is known to fit. Where the store keeps a line of all processes, the first one " +
			"asks as often as its place in it needs, if that is sooner"},
		{"barge", asFlag.to(&w.Barge), no, "callers that do not wait may pass those that do"},
		{"own_line", asFlag.to(&w.OwnLine), no, "those who wait stand in the line of their own process only: what " +
			"waits in others, or comes later to them, may pass. They stand behind those of other configurations " +
			"who are in [the line of all processes](semantics.md#waiting)"},
	}
}

var asBackoff = form[[]time.Duration]{
	read: (*decoder).backoff, bounds: fmt.Sprintf("1 to %d steps of 1ms to 24h", maxBackoff),
	node: func(list []time.Duration) (n node) {
		for _, d := range list {
			n.list = append(n.list, durationNode(d))
		}
		return n
	},
	schema: listOf(asDuration.schema, maxBackoff),
}

func (d *decoder) backoff(e entry) (steps []time.Duration) {
	list, ok := e.value.(*ast.SequenceNode)
	if !ok {
		d.problem(spanOf(e.value), "such as [2s, 4s, 8s]", "backoff must be a list of durations, not %s",
			describe(e.value))
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
