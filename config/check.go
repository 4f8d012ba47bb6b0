package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
	"github.com/drawgate/drawgate/store"
)

// finish checks what depends on several parts of a configuration, or on several files: whether
// rules apply policies that exist, with limits that they have. good means that no mistake was found
// so far.
func (c *Config) finish(good bool) (problems Problems) {
	names := slices.Clone(c.broken)
	for _, p := range c.Policies {
		names = append(names, p.Name)
	}
	problems = append(c.checkNames(), c.checkPrefixOfTables()...)
	for i := range c.Rules {
		for k := range c.Rules[i].Apply {
			if len(problems) < maxProblems {
				problems = append(problems, c.checkApply(i, k, names)...)
			}
		}
	}
	problems = append(problems, c.checkUnits()...)
	for _, w := range c.Telemetry.Watch {
		if !slices.Contains(names, w.Policy) && !c.partial {
			hint, _ := didYouMean(w.Policy, names)
			problems = append(problems, c.note("telemetry.watch", "unknown policy "+shorten(w.Policy), hint))
		}
	}
	for _, name := range slices.Concat(c.Server.ForwardAuth.Shared, c.Server.ForwardAuth.Describe) {
		if !slices.Contains(names, name) && !c.partial {
			problems = append(problems, c.note("server.forward_auth", "unknown policy "+shorten(name),
				someOf(name, names)))
		}
	}
	problems = append(problems, c.checkGateway(names)...)
	if good && len(problems) == 0 {
		problems = c.tryEngine()
	}
	return problems
}

// checkNames reports rules of several files with the same name.
func (c *Config) checkNames() (problems Problems) {
	first := map[string]int{}
	for i := range c.Rules {
		name := c.Rules[i].Name
		j, twice := first[name]
		if p := &c.places[i]; twice && name != "" && p.source != c.places[j].source {
			at := place{c.places[j].source, c.places[j].start}
			problems = append(problems, p.problem(p.place("name"), "rule name "+shorten(name)+" is used twice",
				"the first one is at "+at.String()))
		}
		if !twice {
			first[name] = i
		}
	}
	return problems
}

// checkApply checks a part of a rule against the policy that it applies.
func (c *Config) checkApply(i, k int, names []string) (list Problems) {
	a, place := &c.Rules[i].Apply[k], &c.places[i]
	part := "apply[" + strconv.Itoa(k) + "]."
	report := func(key, hint, format string, args ...any) {
		if !place.bad[part+key] {
			list = append(list, place.problem(place.place(part+key), fmt.Sprintf(format, args...), hint))
		}
	}
	p, ok := c.Policy(a.Policy)
	if !ok {
		if !c.partial && !slices.Contains(names, a.Policy) { // otherwise its mistakes were reported already
			report("policy", someOf(a.Policy, names), "unknown policy %s", shorten(a.Policy))
		}
		return list
	}
	varied, wrong := vary(p, a.Amounts)
	for _, m := range wrong {
		report("limits."+m.key, m.hint, "%s", m.message)
	}
	plan, err := varied.Compile()
	if err != nil {
		return list
	}
	for _, unit := range slices.Sorted(maps.Keys(a.Costs)) {
		n, err := plan.Amounts([]drawgate.Cost{{Unit: unit, N: a.Costs[unit]}})
		if err != nil {
			report("costs."+unit, unitsOf(p), "policy %s counts no %s", shorten(p.Name), shorten(unit))
			continue
		}
		for l := range varied.Limits {
			if varied.Limits[l].Amount > 0 && n[l] > plan.Max(l, drawgate.MaxPriority) && !place.bad[part+"costs"] {
				report("costs."+unit, "", "%d can never fit limit %s of policy %s", n[l], shorten(p.Limits[l].Name),
					shorten(p.Name))
				break
			}
		}
	}
	return list
}

// checkUnits reports rules that take nothing, because they name no unit and their policies count no
// requests.
func (c *Config) checkUnits() (list Problems) {
	e := c.Engine()
	takesNothing, gateway := e.TakesNothing(), c.gatewayUses()
	for _, i := range slices.Sorted(maps.Keys(takesNothing)) {
		place, units, known := &c.places[i], takesNothing[i], !c.places[i].bad["apply"]
		for k := range c.Rules[i].Apply {
			known = known && !place.bad["apply["+strconv.Itoa(k)+"].costs"]
		}
		if !known {
			continue // the mistakes in its costs were reported already
		}
		hint := fmt.Sprintf("add costs, such as {%s: 1}, or {%[1]s: 0} if only callers name them", units[0])
		if use := gateway[c.Rules[i].Apply[0].Policy]; use != nil {
			hint = fmt.Sprintf("add costs: {%s: 0}: the gateway adds what each call uses", units[0])
			if !slices.Contains(use.units, units[0]) {
				hint = "the gateway does not count " + units[0] + ": " + c.unitHint(units[0], use.units)
			}
		}
		list = append(list, place.problem(place.place("apply"),
			"the rule takes nothing: it names no costs, and its policies do not count requests, only "+strings.Join(units, ", "), hint))
	}
	return list
}

// someOf is a hint that names the nearest of some names, or a few of them.
func someOf(name string, names []string) string {
	hint, _ := didYouMean(name, names)
	if hint == "" && len(names) > 0 {
		hint = "have: " + strings.Join(names[:min(len(names), 10)], ", ")
	}
	return hint
}

// unitsOf lists the units that a policy counts.
func unitsOf(p drawgate.Policy) string {
	var units []string
	for _, l := range p.Limits {
		unit := l.Unit
		if unit == "" {
			unit = drawgate.UnitRequests
		}
		if !slices.Contains(units, unit) {
			units = append(units, unit)
		}
	}
	return "it counts " + strings.Join(units, ", ")
}

// tryEngine makes an engine of the configuration. Everything was checked before, with better
// positions. This makes sure that every configuration that is returned works.
func (c *Config) tryEngine() Problems {
	e, err := engine.New(nowhere{}, c.Engine(), nil)
	if err == nil {
		_ = e.Close()
		return nil
	}
	if r, ok := errors.AsType[*rules.Error](err); ok && r.Rule >= 0 && r.Rule < len(c.places) {
		p := &c.places[r.Rule]
		return Problems{p.problem(p.place(fileName(r.Field)), r.Err.Error(), "")}
	}
	if p, ok := errors.AsType[*engine.Error](err); ok {
		return Problems{c.note(policySetting(p.Policy), p.Err.Error(), "")}
	}
	return Problems{c.note("policies", err.Error(), "")}
}

// nowhere is a store that is never called.
type nowhere struct{}

func (nowhere) Take(context.Context, []store.Take, []store.Verdict) error {
	return drawgate.ErrClosed
}

func (nowhere) Settle(context.Context, []store.Settlement, []store.Outcome) error {
	return drawgate.ErrClosed
}

func (nowhere) Peek(context.Context, []store.BucketCost, int8, []store.State) error {
	return drawgate.ErrClosed
}

func (nowhere) Close() error { return nil }
