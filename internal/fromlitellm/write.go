package fromlitellm

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
)

// writer writes the file.
type writer struct{ bytes.Buffer }

func (w *writer) line(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }

// maxComment is the length of the longest comment, in bytes: lines of a file are bounded.
const maxComment = 2000

// maxText is the size of the largest file that can be read.
const maxText = 16 << 20

// write returns the configuration. What was left out is at its end, as comments.
func (c *conversion) write() []byte {
	w := &writer{}
	w.line("# Made from LiteLLM's configuration %s by drawgate init --from litellm. What was left out, or differs, is listed at the end.",
		printable(filepath.Base(c.in.Config.Name)))
	w.line("# docs/from/litellm.md says how the two differ, docs/configuration.md what each key of this file means.")
	c.writeCallers(w)
	w.line("store: %s", c.store)
	c.writePolicies(w)
	c.writeRules(w)
	w.line("gateway:")
	w.line("  listen: 127.0.0.1:7881   # where programs call it")
	c.writeUpstreams(w)
	c.writeAliases(w)
	c.writeKeys(w)
	c.writePrices(w)
	c.writeLeft(w)
	return w.Bytes()
}

// writeCallers writes how callers ask for each model_name: the address behind the gateway's, and
// the name of the model.
func (c *conversion) writeCallers(w *writer) {
	w.line("#")
	w.line("# How callers ask for each model_name, with the SDK of the provider whose form it is: there is no translation.")
	for _, g := range c.groups {
		e := g.entries[0]
		base := "/" + e.up.name
		if e.up.profile == "openai" && e.up.v1 {
			base += "/v1"
		}
		w.line("#   %-30s base URL http://127.0.0.1:7881%s (%s), model %s", show(g.name), base, e.up.profile, show(g.callers()))
	}
}

// noLimits is the policy of models that have no limits in LiteLLM.
const noLimits = "no-limits"

func (c *conversion) writePolicies(w *writer) {
	w.line("policies:")
	taken, without := map[string]bool{noLimits: true, everybody: true}, false
	for _, s := range c.callers.sets {
		taken[s.name] = true
	}
	for _, u := range c.upstreams {
		for _, e := range u.entries {
			if e.limits == nil {
				e.policy, without = noLimits, true
				continue
			}
			e.policy = unused(policyName(u.name+"-"+e.model), "-", taken)
			taken[e.policy] = true
			w.policy(e.policy, e.limits, true)
		}
	}
	if without {
		w.line("  %s:   # LiteLLM limits these models by nothing. Write what the provider grants, and remove disabled", noLimits)
		w.line("    disabled: true")
		w.line("    limits: [{name: rpm, rolling: 1m, amount: 60, margin: 2s}]")
		w.line("    fallback: closed")
	}
	for _, s := range c.callers.sets {
		if len(s.limits) > 0 && c.callers.uses(s) {
			w.policy(s.name, s.limits, false)
		}
	}
	if c.budget != nil {
		w.policy(everybody, []limit{*c.budget}, false)
	}
}

// uses reports whether a key, or a team that has one, has these limits.
func (s *callers) uses(set *limitSet) bool {
	return slices.ContainsFunc(s.keys, func(k *callerKey) bool {
		return k.limits == set || k.team != nil && k.team.limits == set
	})
}

// everybody is the policy of the budget of the whole proxy.
const everybody = "everybody"

const policyChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

// policyName returns a name for a policy that is easy to type.
func policyName(text string) string {
	text = strings.Map(func(r rune) rune {
		if strings.ContainsRune(policyChars, r) {
			return r
		}
		return '-'
	}, strings.TrimSuffix(text, "*"))
	const most = 100
	if len(text) > most {
		text = text[:most]
	}
	return strings.Trim(text, "-")
}

func (w *writer) policy(name string, limits []limit, ofProvider bool) {
	w.line("  %s:", quote(name))
	w.line("    limits:")
	for i := range limits {
		w.line("      - %s", limits[i].text(ofProvider))
	}
	if ofProvider {
		w.line("    wait: {up_to: 90s}   # LiteLLM refuses at once")
		w.line("    fallback: closed")
	}
}

func (c *conversion) writeRules(w *writer) {
	var rules []string
	rule := func(match string, s *limitSet, key string) {
		if s != nil && len(s.limits) > 0 {
			rules = append(rules, fmt.Sprintf("  - {match: {%s}, apply: [{policy: %s, key: %s%s}]}", match, quote(s.name), key,
				costs(s.limits)))
		}
	}
	if c.budget != nil {
		rule(`attrs: {key: "*"}`, &limitSet{name: everybody, limits: []limit{*c.budget}}, `'"all"'`)
	}
	for _, s := range c.callers.sets {
		if strings.HasPrefix(s.name, "key-") {
			rule("class: "+quote(s.name), s, `attr("key")`)
		}
	}
	for _, t := range c.callers.teams {
		if t.used {
			rule("attrs: {team: "+quote(t.name)+"}", t.limits, `attr("team")`)
		}
	}
	if len(rules) > 0 {
		w.line("rules:\n%s", strings.Join(rules, "\n"))
	}
}

// costs is what a rule has to say of policies that do not count requests.
func costs(limits []limit) string {
	for i := range limits {
		if limits[i].unit == "" {
			return ""
		}
	}
	return fmt.Sprintf(", costs: {%s: 0}", limits[0].unit)
}

func (c *conversion) writeUpstreams(w *writer) {
	w.line("  upstreams:")
	for _, u := range c.upstreams {
		w.line("    %s:", quote(u.name))
		if u.name != u.profile {
			w.line("      profile: %s", u.profile)
		}
		if u.url != "" {
			w.line("      url: %q", printable(u.url))
		}
		if u.key != "" {
			w.line("      api_key_env: %s", u.key)
		}
		if u.retries > 0 {
			w.line("      retries: %d", u.retries)
		}
		if u.timeout != "" {
			w.line("      duration: %s", u.timeout)
		}
		w.line("      models:")
		for _, e := range u.entries {
			w.line("        - {model: %s, policy: %s%s}   # line %d", quote(e.model), quote(e.policy), fallbacksText(e), e.line)
		}
	}
}

func fallbacksText(e *entry) string {
	if len(e.fallbacks) == 0 {
		return ""
	}
	return ", fallbacks: " + listText(e.fallbacks)
}

// listText returns a list, on several lines if it is long: those of a file are bounded.
func listText(names []string) string {
	const onLine = 10
	var b strings.Builder
	for i, n := range names {
		switch {
		case i > 0 && i%onLine == 0:
			b.WriteString(",\n        ")
		case i > 0:
			b.WriteString(", ")
		}
		b.WriteString(quote(n))
	}
	return "[" + b.String() + "]"
}

func (c *conversion) writeAliases(w *writer) {
	if len(c.aliases) == 0 {
		return
	}
	w.line("  aliases:")
	for _, a := range c.aliases {
		if len(a.entries) == 1 {
			w.line("    %s: %s", quote(a.name), quote(a.entries[0].target()))
			continue
		}
		w.line("    %s:", quote(a.name))
		for i, weight := range scaled(a.weights) {
			w.line("      - {model: %s, weight: %d}", quote(a.entries[i].target()), weight)
		}
	}
}

// maxWeight is the largest weight of an account.
const maxWeight = 1000

// scaled returns weights from 1 to maxWeight that are to each other as the given ones, as far as
// whole numbers can be. Where there is a 0, it is as small as can be beside the others.
func scaled(weights []int64) []int64 {
	divisor := int64(0)
	for _, n := range weights {
		for a, b := divisor, n; ; a, b = b, a%b {
			if b == 0 {
				divisor = a
				break
			}
		}
	}
	divisor = max(1, divisor)
	most := slices.Max(weights) / divisor
	stretch := most > maxWeight || most > 0 && slices.Contains(weights, 0)
	list := make([]int64, 0, len(weights))
	for _, n := range weights {
		n /= divisor
		if stretch {
			n = n * maxWeight / most
		}
		list = append(list, max(1, n))
	}
	return list
}

func (c *conversion) writeKeys(w *writer) {
	w.line("  keys:")
	for _, k := range c.callers.keys {
		text := "name: " + quote(k.name)
		if k.env != "" {
			text += ", secret_env: " + k.env
		} else {
			text += fmt.Sprintf(", sha256: %q", k.sum)
		}
		if k.team != nil {
			text += ", team: " + quote(k.team.name)
		}
		if k.user != "" {
			text += ", user: " + quote(k.user)
		}
		if k.limits != nil && len(k.limits.limits) > 0 {
			text += ", class: " + quote(k.limits.name)
		}
		if k.models != nil {
			text += ", models: " + listText(k.models)
		}
		if k.expires != "" {
			text += ", expires: " + k.expires
		}
		if k.disabled {
			text += ", disabled: true"
		}
		w.line("    - {%s}", text)
	}
}

func (c *conversion) writePrices(w *writer) {
	if len(c.priced) == 0 {
		return
	}
	w.line("  prices:   # dollars per million tokens")
	w.line("    models:")
	for _, name := range slices.Sorted(maps.Keys(c.priced)) {
		w.line("      %s: %s", quote(name), c.priced[name].text())
	}
}

func (c *conversion) writeLeft(w *writer) {
	notes := c.sorted()
	if len(notes) == 0 {
		return
	}
	w.line("\n# Left out, or different from LiteLLM:")
	for _, n := range notes {
		text := printable(n.String())
		w.line("# - %s", strings.ToValidUTF8(text[:min(len(text), maxComment)], ""))
	}
}
