package config

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
)

// multiTier reads the preset multi-tier: limits that have the names of calendar windows. One whose
// variable is absent is as in the preset; with 0 or an empty one it is left out.
func (e *environment) multiTier() {
	asked := e.set(prefixed(Variables(), envPer)...)
	if !e.boolean(envEnabled, len(asked) > 0) {
		e.idle(asked)
		return
	}
	p := e.use(MultiTier)[MultiTier]
	if p == nil {
		return
	}
	p.asked = append(e.set(envEnabled), asked...)
	wrong := len(e.problems)
	fixed := e.strategy()
	var limits []drawgate.Limit
	for _, l := range p.Limits {
		variable := envPer + strings.ToUpper(l.Name)
		n, ok := e.amount(variable, 0)
		_, present := e.vars[variable]
		switch {
		case ok && n > 0:
			l.Amount = n
			p.from(l.Name, variable)
		case present:
			continue
		}
		if fixed {
			l = drawgate.Limit{
				Name: l.Name, Kind: drawgate.Calendar, Amount: l.Amount, Fallback: l.Fallback,
				Every: drawgate.Minute + drawgate.Every(slices.Index(everyWords(), l.Name)), // in the calendar's order
			}
		}
		limits = append(limits, l)
	}
	if len(limits) == 0 && len(e.problems) == wrong {
		e.problems = append(e.problems,
			e.note("%s…: every period is 0 or empty, so nothing would be limited; to switch the limits off, set %s=false", envPer, envEnabled))
	}
	if n, ok := e.amount(envConcurrency, 0); ok && n > 0 {
		limits = append(limits, drawgate.Limit{Name: "concurrency", Kind: drawgate.Concurrency, Amount: n})
		p.from("concurrency", envConcurrency)
	}
	p.Limits = limits
	e.add(p)
	if path := e.get(envStorage); path != "" {
		e.named = append(e.named, choice{url: sqliteURL(path), from: "environment: " + envStorage})
	}
}

// idle warns of variables that say how to limit if no variable sets a limit.
func (e *environment) idle(asked []string) {
	if len(asked) > 0 || e.get(envEnabled) != "" {
		return // it was switched off on purpose
	}
	for _, name := range e.set(envConcurrency, envStrategy, envStorage) {
		e.warnings = append(e.warnings, e.note("%s has no effect until %s=true or a %s* variable is set", name,
			envEnabled, envPer))
	}
}

// strategy reports whether windows follow the calendar.
func (e *environment) strategy() bool {
	switch strings.ToLower(e.get(envStrategy)) {
	case "", "rolling":
		return false
	case "fixed":
		return true
	}
	e.problem(envStrategy, "is neither rolling nor fixed")
	return false
}

func sqliteURL(path string) string {
	if strings.HasPrefix(path, "/") {
		return "sqlite://" + path
	}
	return "sqlite:" + path
}

// geminiFree reads the preset gemini-free. An amount in a variable already has the safety margin,
// so it gets no headroom.
func (e *environment) geminiFree() {
	models := []struct{ variable, policy string }{{"FLASH", "gemini-2.5-flash"}, {"PRO", "gemini-2.5-pro"}}
	limits := []string{"rpm", "rpd"}
	name := func(model, limit string) string { return "GEMINI_" + model + "_" + strings.ToUpper(limit) + "_LIMIT" }
	if len(e.set(name("FLASH", "rpm"), name("FLASH", "rpd"), name("PRO", "rpm"), name("PRO", "rpd"))) == 0 {
		return
	}
	e.redisAsked = true
	policies := e.use(GeminiFree)
	for _, m := range models {
		p := policies[m.policy]
		if p == nil {
			continue
		}
		for i, limit := range limits {
			if n, ok := e.amount(name(m.variable, limit), 1); ok {
				p.Limits[i].Amount, p.Limits[i].Headroom = n, drawgate.Share{}
				p.from(limit, name(m.variable, limit))
			}
		}
		e.add(p)
	}
}

// global reads the preset global: one bucket.
func (e *environment) global() {
	asked := e.set(envCapacity, envRefill)
	if len(asked) == 0 && !e.distributed {
		return
	}
	p := e.use(Global)[Global]
	if p == nil {
		return
	}
	if e.distributed {
		p.asked = []string{envDistributed}
	}
	l := &p.Limits[0]
	if n, ok := e.amount(envCapacity, 1); ok {
		l.Burst = n
		p.from(l.Name, envCapacity)
	}
	if e.get(envRefill) != "" {
		amount, window, err := perSecond(e.get(envRefill))
		if err != nil {
			e.problem(envRefill, "%s", err)
			return
		}
		l.Amount, l.Window = amount, window
		p.from(l.Name, envRefill)
	}
	e.add(p)
}

var decimals = pattern.New(`^[0-9]{1,7}(\.[0-9]{1,6})?$`)

// perSecond returns a rate per second as a whole number per period, without rounding. The period is
// a minute if possible, so that a change of the rate seldom makes it a new limit.
func perSecond(text string) (amount int64, period time.Duration, err error) {
	rate, ok := new(big.Rat).SetString(text)
	if !decimals().MatchString(text) || !ok || rate.Sign() <= 0 || rate.Cmp(big.NewRat(1_000_000, 1)) > 0 {
		return 0, 0, fmt.Errorf("is not a number above 0 and up to 1000000 with at most six decimals")
	}
	for _, period := range []time.Duration{time.Minute, time.Hour} {
		if n := new(big.Rat).Mul(rate, big.NewRat(int64(period/time.Second), 1)); n.IsInt() {
			return n.Num().Int64(), period, nil
		}
	}
	const million = 1_000_000 // six decimals are whole per million seconds
	return new(big.Rat).Mul(rate, big.NewRat(million, 1)).Num().Int64(), million * time.Second, nil
}

// httpAPI reads the preset http-api: limits per address, for the whole API, per user, and for
// tasks.
func (e *environment) httpAPI() {
	scopes := []string{"ip", "api", "user"}
	rate := func(scope string) string { return strings.ToUpper(scope) + "_REQUESTS_PER_MINUTE" }
	burst := func(scope string) string { return strings.ToUpper(scope) + "_BURST_SIZE" }
	asked := 0
	for _, s := range scopes {
		asked += len(e.set(rate(s), burst(s)))
	}
	if asked == 0 {
		return
	}
	e.redisAsked, e.httpPreset = true, true
	policies := e.use(HTTPAPI)
	for _, s := range append(scopes, "task") {
		p := policies[s]
		if p == nil {
			continue
		}
		l := &p.Limits[0]
		if n, ok := e.amount(rate(s), 1); ok && s != "task" {
			l.Amount = n
			p.from(l.Name, rate(s))
		}
		if n, ok := e.amount(burst(s), 1); ok && s != "task" {
			l.Burst = n
			p.from(l.Name, burst(s))
		}
		if s == "task" {
			e.line(p)
		}
		e.add(p)
	}
}

// line bounds the queue of tasks that wait. The number is checked with the other settings of the
// queue.
func (e *environment) line(task *envPolicy) {
	if n, err := parseInteger(e.get(envQueueDepth)); err == nil && n > 0 {
		task.Wait.Queue = int(min(n, maxQueue))
		task.origin(waitSetting(task.Name), envQueueDepth)
	}
}
