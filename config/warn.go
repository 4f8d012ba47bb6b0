package config

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// warn adds warnings about what works but is perhaps not intended, and that concern several parts
// of the configuration. Warnings about a single limit come from cautions.
func (c *Config) warn() {
	if c.Off {
		c.warnOf("enabled", "", "all limits are switched off: everything passes")
	}
	for i := range c.Policies {
		c.warnFallback(&c.Policies[i])
		c.warnShortWait(&c.Policies[i])
		if c.Modes[c.Policies[i].Name].Disabled && !c.Off {
			c.warnOf(policySetting(c.Policies[i].Name)+".disabled", "", "policy %s is switched off: it limits nothing",
				shorten(c.Policies[i].Name))
		}
	}
	c.warnInstances()
	c.warnStart()
	c.warnCold()
	if need := (*dynamostore.Store)(nil).TakeTime(0); onDynamoDB(c.Store) && c.StoreTimeout > 0 &&
		c.StoreTimeout < need {
		c.warnOf("store_timeout", "leave it out", "store_timeout is %s, but a take on DynamoDB may need %s: "+
			"units of takes that are cut off may be spent for nobody",
			formatDuration(c.StoreTimeout), formatDuration(need))
	}
	if c.RequireMark && !c.onRedis() {
		c.warnOf("store_mark", "", "store_mark is for Redis and has no effect on the store %s", RedactURL(c.Store))
	}
	if c.NoBatches && !c.onRedis() {
		c.warnOf("store_batches", "", "store_batches is for Redis and has no effect on the store %s", RedactURL(c.Store))
	}
	if c.NoRecovery && !c.onRedis() {
		c.warnOf("store_recovery", "", "store_recovery is for Redis and has no effect on the store %s", RedactURL(c.Store))
	}
	c.warnLarge()
	c.warnLeased()
	c.warnRules()
	c.warnServer()
	c.warnQueue()
	c.warnGateway()
	c.warnUnits()
	c.warnStored()
	if len(c.Warnings) > maxProblems {
		c.Warnings = c.Warnings[:maxProblems]
	}
	c.Warnings = Problems(c.Warnings).sorted()
}

// warnOf adds a warning about a setting, with its position.
func (c *Config) warnOf(setting, hint, format string, args ...any) {
	c.Warnings = append(c.Warnings, c.note(setting, fmt.Sprintf(format, args...), hint))
}

// warnInstances warns if processes do not share the store.
func (c *Config) warnInstances() {
	const hint = "name a Redis server, a PostgreSQL database or a table of DynamoDB as the store, or leave instances out"
	n, local := c.Instances, c.Store == Memory
	switch {
	case n.Auto && local:
		c.warnOf("instances", hint, "other instances cannot be counted: the store %s is not shared with them", c.Store)
	case !n.Auto && n.Number > 1 && !c.shared():
		c.warnOf("instances", hint, "instances is %d, but the store %s cannot be shared by several machines", n.Number,
			RedactURL(c.Store))
	}
}

// warnStart warns of starts that admit everything again, or cannot.
func (c *Config) warnStart() {
	if c.local() {
		return
	}
	full := func(setting, whose string) {
		switch {
		case !c.ownFile():
			c.warnOf(setting, "", "%s cannot start full, which needs a SQLite file that one process uses "+
				"(instances: 1): they start cold", whose)
		case c.stands(setting): // presets do it on purpose
			c.warnOf(setting, "", "%s start full: each process that starts while the file cannot be used admits "+
				"the whole limit again, whatever was admitted before", whose)
		}
	}
	if c.Start == drawgate.StartFull {
		full("start", "policies")
	}
	for i := range c.Policies {
		p := &c.Policies[i]
		setting := policySetting(p.Name) + ".start"
		if p.Start == drawgate.StartFull && (c.Start != drawgate.StartFull || c.stands(setting)) {
			full(setting, "the buckets of policy "+shorten(p.Name))
		}
	}
}

// warnCold warns of a start that has no effect, and of parts whose size nobody has chosen.
func (c *Config) warnCold() {
	started := ""
	for i := range c.Policies {
		p := &c.Policies[i]
		setting := policySetting(p.Name) + ".start"
		if p.Start == drawgate.StartDefault {
			setting = "start"
		}
		switch shares := slices.ContainsFunc(p.Limits, func(l drawgate.Limit) bool {
			return cmp.Or(l.Fallback, p.Fallback, drawgate.FallbackShare) == drawgate.FallbackShare
		}); {
		case c.StartOf(p) != drawgate.StartCold && c.StartOf(p) != drawgate.StartFull:
		case shares:
			started = setting
		case p.Start != drawgate.StartDefault && c.stands(setting):
			c.warnOf(setting, "leave it out, or set fallback: share",
				"start has no effect on policy %s: none of its limits has fallback: share", shorten(p.Name))
		}
	}
	switch {
	case c.local() && (started == "start" || c.stands(started)):
		c.warnOf(started, "leave it out", "start has no effect on the store %s, which is never unavailable", Memory)
	case started != "" && c.shared() && c.SharedBy().Auto && c.SharedBy().Number < 2:
		c.warnOf(started, "set instances: {auto: true, at_least: N} with the number of processes",
			"processes that start while the store is unavailable are not counted, "+
				"and each admits about a quarter of each limit at once, because at_least is not set")
	}
}

// ownFile reports whether the store is a file that only one process uses.
func (c *Config) ownFile() bool {
	_, onDisk := SQLitePath(c.Store)
	return onDisk && c.SharedBy() == Instances{Number: 1}
}

// StartOf returns how a policy starts during an outage: never StartDefault, and StartFull only with
// a store that only one process uses.
func (c *Config) StartOf(p *drawgate.Policy) drawgate.Start {
	s := cmp.Or(p.Start, c.Start, drawgate.StartClosed)
	if s == drawgate.StartFull && !c.ownFile() {
		return drawgate.StartCold
	}
	return s
}

// shared reports whether several machines may have the same store.
func (c *Config) shared() bool { return IsRedis(c.Store) || IsPostgres(c.Store) || onDynamoDB(c.Store) }

// warnLeased warns of policies that are leased to no effect.
func (c *Config) warnLeased() {
	for i := range c.Policies {
		p := &c.Policies[i]
		setting := policySetting(p.Name) + ".leased"
		plan, err := p.Compile()
		switch {
		case err != nil || !p.Leased:
		case c.local():
			c.warnOf(setting, "leave it out", "leased has no effect on the store %s, which is in this process", Memory)
		case plan.LeaseLife(0) == 0:
			c.warnOf(setting, "leave it out, or raise the amount", "leased has no effect on policy %s: one of its limits "+
				"has fewer than 50 units for each lease, which lasts a hundredth of the shortest window, and at most 500ms",
				shorten(p.Name))
		}
	}
}

// warnFallback warns about the fallback of a policy.
func (c *Config) warnFallback(p *drawgate.Policy) {
	for i := range p.Limits {
		l := &p.Limits[i]
		mode := l.Fallback
		if mode == drawgate.FallbackDefault {
			mode = p.Fallback
		}
		setting := limitSetting(p.Name, l.Name)
		switch {
		case mode == drawgate.FallbackOpen && c.stands(setting): // presets do it on purpose
			c.warnOf(setting, "",
				"limit %s of policy %s is open: while the store is unavailable it does not limit at all",
				shorten(l.Name), shorten(p.Name))
		case mode != drawgate.FallbackClosed && c.Instances.Number > 1:
			c.warnShare(l, setting)
		}
	}
}

// warnShortWait warns about a longest wait within which a limit that is used up need not free a
// unit: takes that come behind a burst are then refused at once.
func (c *Config) warnShortWait(p *drawgate.Policy) {
	var shortest *drawgate.Limit
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Kind == drawgate.Rolling && (shortest == nil ||
			l.Window+l.Margin < shortest.Window+shortest.Margin) {
			shortest = l
		}
	}
	if shortest == nil || p.Wait.MaxWait == 0 || p.Wait.MaxWait >= shortest.Window+shortest.Margin {
		return
	}
	whole := formatDuration(shortest.Window + shortest.Margin)
	c.warnOf(policySetting(p.Name)+".wait.up_to", "make it longer than "+whole,
		"policy %s waits up to %s, but the units of a burst leave limit %s after %s: takes behind it are refused at once",
		shorten(p.Name), formatDuration(p.Wait.MaxWait), shorten(shortest.Name), whole)
}

// warnProvider warns about a policy of an upstream that may be exceeded while the store is
// unavailable: what is over is refused by the provider, or paid for.
func (c *Config) warnProvider(p *drawgate.Policy) {
	for i := range p.Limits {
		l := &p.Limits[i]
		mode := l.Fallback
		if mode == drawgate.FallbackDefault {
			mode = p.Fallback
		}
		how := ""
		switch {
		case mode == drawgate.FallbackOpen:
			how = "open"
		case mode != drawgate.FallbackClosed && (c.Instances.Auto || c.Instances.Number > 1):
			how = "share, with several instances"
		}
		if how != "" {
			c.warnOf(limitSetting(p.Name, l.Name), "set fallback: closed",
				"limit %s of policy %s is an upstream's, and its fallback is %s: it may be exceeded when the store is unavailable",
				shorten(l.Name), shorten(p.Name), how)
			return // one for the policy
		}
	}
}

// warnShare warns about a share of less than one unit.
func (c *Config) warnShare(l *drawgate.Limit, setting string) {
	if most := most(l, drawgate.MaxPriority); l.Amount > 0 && most >= 0 && most < int64(c.Instances.Number) {
		c.warnOf(setting, "",
			"%d instances share an amount of %d, so each share is less than one unit: while the store is unavailable limit %s admits nothing", c.Instances.Number, most, shorten(l.Name))
	}
}

// warnRules warns of rules without effect, and of policies without rules.
func (c *Config) warnRules() {
	if len(c.Rules) == 0 {
		return
	}
	applied := map[string]bool{}
	for i := range c.Rules {
		for k := range c.Rules[i].Apply {
			applied[c.Rules[i].Apply[k].Policy] = true
		}
		c.warnRule(i)
	}
	for i := range c.Gateway.Upstreams {
		for _, m := range c.Gateway.Upstreams[i].Models {
			applied[m.Policy] = true
		}
	}
	c.warnOrder()
	for _, p := range c.Policies {
		if !applied[p.Name] && c.stands(policySetting(p.Name)) {
			c.warnOf(policySetting(p.Name), "", "no rule applies policy %s: it limits only takes that name it",
				shorten(p.Name))
		}
	}
}

// warnRule warns about one rule.
func (c *Config) warnRule(i int) {
	r, at := &c.Rules[i], &c.places[i]
	warn := func(part, hint, format string, args ...any) {
		c.Warnings = append(c.Warnings, at.problem(at.place(part), fmt.Sprintf(format, args...), hint))
	}
	if r.Match.Path != "" && likeRegexp().MatchString(r.Match.Path) {
		warn("match.path",
			"/v1/* matches everything that begins with /v1/, {name} any one segment; for patterns use when: path matches \"…\"",
			"path %s looks like a regular expression, which it is not", shorten(r.Match.Path))
	}
	classes := append(c.APIKeys.names(), c.APIKeys.class())
	if class := r.Match.Class; class != "" && c.APIKeys.Classes != nil && !strings.HasSuffix(class, "*") &&
		!slices.Contains(classes, class) {
		hint, _ := didYouMean(class, classes)
		warn("match.class", hint, "no API key is of class %s", shorten(class))
	}
	c.warnAttributes(r.Match.Attrs, warn)
	if r.Shadow || !r.Exempt || len(r.Match.IPs) == 0 {
		return
	}
	for _, p := range r.Match.IPs {
		if p.Bits() == 0 {
			warn("match.ips", "", "every client in %s is exempt", p)
		}
	}
}

// gatewayAttributes are what rules can look at in a call of the gateway.
var gatewayAttributes = []string{"key", "team", "user", "upstream", "provider", "model", "family", "operation"}

// warnAttributes warns about attributes of a rule that no call of the gateway has.
func (c *Config) warnAttributes(attrs map[string]string, warn func(part, hint, format string, args ...any)) {
	if len(c.Gateway.Upstreams) == 0 {
		return
	}
	has := map[string][]string{}
	for _, k := range c.Gateway.Keys {
		has["key"], has["team"], has["user"] = append(has["key"], k.Name), append(has["team"], k.Team),
			append(has["user"], k.User)
	}
	if len(c.Gateway.Tokens) > 0 { // their claims say it
		delete(has, "key")
		delete(has, "team")
		delete(has, "user")
	}
	for _, u := range c.Gateway.Upstreams {
		has["upstream"] = append(has["upstream"], u.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(attrs)) {
		want := attrs[name]
		if !slices.Contains(gatewayAttributes, name) {
			if hint, _ := didYouMean(name, gatewayAttributes); hint != "" {
				warn("match.attrs", hint, "a call of the gateway has no attribute %s", shorten(name))
			}
			continue
		}
		if name == "model" && c.Gateway.alias(want) != nil {
			warn("match.attrs", "rules see the model that it stands for", "no call of the gateway has the model %s: it is an alias",
				shorten(want))
			continue
		}
		if list := has[name]; list != nil && !strings.HasSuffix(want, "*") && !slices.Contains(list, want) {
			hint, _ := didYouMean(want, list)
			warn("match.attrs", hint, "no call of the gateway has the %s %s", name, shorten(want))
		}
	}
}

var likeRegexp = pattern.New(`[\\^$()|+\[\]]|\.\*|/:[A-Za-z_]`)

// warnServer warns about what the server would refuse, or should not do.
func (c *Config) warnServer() {
	s := &c.Server
	if s.GRPC == "" || s.GRPC == ListenOff {
		if len(c.Envoy.Configs) > 0 {
			c.warnOf("envoy.configs", "such as server: {grpc: 127.0.0.1:7880}",
				"nobody can ask for these limits: the listener for gRPC is off")
		}
	}
	if c.Envoy.Refunds {
		c.warnOf("envoy.refunds", "",
			"hits that are given back carry no id: limits may be exceeded by the number of such hits")
	}
	if len(s.Tokens) > 0 || s.TLS.ClientCA != "" {
		if s.Insecure {
			c.warnOf("server.insecure", "leave it out",
				"insecure has no effect: the server asks for tokens or client certificates")
		}
		if s.TLS.Cert == "" {
			c.warnPlain()
		}
		return
	}
	for _, l := range s.listeners() {
		if !onLoopback(l.address) && !s.Insecure {
			c.warnOf(l.setting, "add server.tokens or server.tls.client_ca, or set insecure: true",
				"%s is not a loopback address, and no token is required: the server will refuse to listen", l.address)
		}
	}
}

// warnPlain warns about tokens that are sent over a network without TLS.
func (c *Config) warnPlain() {
	for _, l := range c.Server.listeners() {
		if !onLoopback(l.address) {
			c.warnOf(l.setting, "set server.tls, unless something in front of it does",
				"tokens are sent to %s without TLS", l.address)
		}
	}
}

type listener struct{ setting, address string }

// listeners returns the addresses that are configured for listening.
func (s *Server) listeners() (list []listener) {
	for _, l := range []listener{{"server.listen", s.Listen}, {"server.admin", s.Admin}, {"server.grpc", s.GRPC}} {
		if l.address != "" && l.address != ListenOff {
			list = append(list, l)
		}
	}
	return list
}

// onLoopback reports whether only this machine can reach an address.
func onLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host == "localhost" {
		return err == nil
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
