package fromlitellm

import (
	"fmt"
	"strings"

	"github.com/drawgate/drawgate/llm"
)

// details reads what a deployment says besides its model.
func (c *conversion) details(d *deployment, params *value) {
	what := "model " + show(d.group)
	t := newTable(params, what)
	for _, key := range []string{"model", "custom_llm_provider", "api_key", "api_base", "base_url"} {
		t.seen[key] = true
	}
	limits := c.limits(d.withLimits(t), ofModel, d.entry.units())
	if b := c.budgetOf(t, true); b != nil {
		limits = append(limits, *b)
	}
	c.timeoutOf(d.entry.up, t.get("timeout"))
	if n := t.get("max_retries"); n != nil {
		c.retry(d.entry.up, n, what)
	}
	d.weights = weightsOf(t)
	info := newTable(d.get("model_info"), what+": model_info")
	for _, group := range listOf(info.get("access_groups")) {
		d.access = append(d.access, group.plain())
	}
	c.merge(d, limits, priceOf(t, info))
	for _, p := range info.keys {
		info.seen[p.key] = info.seen[p.key] || strings.HasPrefix(p.key, "supports_")
	}
	c.rest(t, paramReasons)
	c.rest(info, infoReasons)
	own := newTable(d.value, what)
	for _, key := range []string{"model_name", "litellm_params", "model_info", "rpm", "tpm"} {
		own.seen[key] = true
	}
	c.rest(own, nil)
}

// withLimits returns the settings of a deployment with the limits that are not among them, but
// beside them or in model_info, where LiteLLM looks for them as well.
func (d *deployment) withLimits(t *table) *table {
	all := &value{file: t.file, line: t.line, kind: isTable, keys: t.keys}
	for _, key := range []string{"rpm", "tpm"} {
		for _, other := range []*value{d.get(key), d.get("model_info").get(key)} {
			if other != nil && all.get(key) == nil {
				all.keys = append(all.keys, pair{key, other})
			}
		}
	}
	return &table{all, t.what, t.seen}
}

// units are what the provider of a model counts.
func (e *entry) units() []string {
	p, ok := llm.ByName(e.up.profile)
	if !ok {
		return nil
	}
	return p.Units
}

// merge gives a model the limits and the price of a deployment. Several deployments of one model at
// one account share them here, as they do at the provider.
func (c *conversion) merge(d *deployment, limits []limit, p *price) {
	e := d.entry
	if e.price == nil {
		e.price = p
	}
	switch {
	case e.limits == nil:
		e.limits = limits
	case limits != nil && same(limits) != same(e.limits):
		c.leave(d.value, "model "+show(d.group)+": limits",
			"line %d has the same model of the same account, whose limits hold for both", e.line)
	}
}

// weightKeys are the settings by which LiteLLM chooses among deployments: by the first of these
// that the first deployment has. One without it is never chosen.
var weightKeys = [...]string{"weight", "rpm", "tpm"}

func weightsOf(t *table) (list [len(weightKeys)]int64) {
	for i, key := range weightKeys {
		if n, ok := t.get(key).whole(); ok && n > 0 {
			list[i] = n
		}
	}
	return list
}

// weight returns how often LiteLLM chooses a deployment of a group, whose first one it may be.
func (c *conversion) weight(g *group, d *deployment) int64 {
	first := g.first
	if first == nil {
		first = d
		g.first = d
	}
	for i, n := range first.weights {
		if n == 0 {
			continue
		}
		if d.weights[i] == 0 {
			c.leave(d.value, "model "+show(d.group), "LiteLLM never chooses it, because it has no %s, which the first one has: "+
				"here it gets as little as there is", weightKeys[i])
		}
		return d.weights[i]
	}
	return 1
}

func listOf(v *value) []*value {
	if v == nil {
		return nil
	}
	return v.list
}

// maxRetries is the most that an upstream can have.
const maxRetries = 10

// retry sets the retries of an upstream.
func (c *conversion) retry(u *upstream, v *value, what string) {
	if n, ok := c.retriesOf(v, what); ok {
		u.retries = max(u.retries, n)
	}
}

func (c *conversion) retriesOf(v *value, what string) (n int, ok bool) {
	many, ok := v.whole()
	if !ok {
		c.leave(v, what+": "+"retries", "it is not a whole number")
		return 0, false
	}
	if many > maxRetries {
		c.leave(v, what+": "+"retries", "the most is %d", maxRetries)
		many = maxRetries
	}
	return int(many), true
}

// timeoutOf notes the time-out of a deployment: it is one of the whole upstream here.
func (c *conversion) timeoutOf(u *upstream, v *value) {
	text := c.timeout
	if v != nil {
		if text = seconds(v); text == "" {
			c.leave(v, "timeout", "it is not a number of seconds from 1 to 86400")
		}
	}
	u.timeouts = append(u.timeouts, text)
}

// seconds returns a duration of whole seconds, or milliseconds, for the file; "" if it is none.
func seconds(v *value) string {
	ms, ok := v.times(1000)
	if !ok || ms < 1000 || ms > 86_400_000 {
		return ""
	}
	if ms%1000 == 0 {
		return fmt.Sprintf("%ds", ms/1000)
	}
	return fmt.Sprintf("%dms", ms)
}

// oneTimeout returns the time-out of an upstream, if its models have one together.
func (c *conversion) oneTimeout(u *upstream) string {
	for _, other := range u.timeouts {
		if other != u.timeouts[0] {
			c.leave(u.entries[0].value, "timeout of upstream "+u.name, "its models have different ones, and an upstream "+
				"has one: duration")
			return ""
		}
	}
	return u.timeouts[0]
}

// paramReasons says why settings of litellm_params are left out.
var paramReasons = reasons(map[string]string{ //nolint:gosec // names of settings, no secrets
	"accounts of one name are equal here, but for their weights":                          "order",
	"an upstream has duration, for whole answers, and silence, between the pieces of one": "stream_timeout",
	"the provider knows the organization by the key":                                      "organization",
	"callers write the version":                                                           "api_version",
	passed: "drop_params additional_drop_params modify_params allowed_openai_params temperature top_p " +
		"max_tokens extra_body extra_headers headers merge_reasoning_content_in_choices",
	"rules choose by keys, teams and models: see docs/rules.md":            "tags",
	"drawgate simulate answers in a provider's place":                      "mock_response",
	"name the variable of the key: api_key: os.environ/NAME":               "litellm_credential_name",
	"paths that no quota counts pass if the upstream lists them in others": "use_in_pass_through",
	"callers cannot choose the provider's key or address":                  "configurable_clientside_auth_params",
	"write a policy for keys with a rule that matches the model": "default_api_key_rpm_limit " +
		"default_api_key_tpm_limit",
	"accounts are not chosen by region": "region_name",
	cooldown:                            "cooldown_time",
})

const (
	//nolint:gosec // no secret
	passed   = "calls pass as the caller writes them: nothing is added, changed or dropped"
	cooldown = "an upstream's breaker stops calls after failures: breaker: {failures: 5, open: 60s}"
)

// infoReasons says the same of model_info. What only describes a model changes nothing.
var infoReasons = reasons(map[string]string{
	"": "id mode base_model max_tokens max_input_tokens max_output_tokens description rpm tpm " +
		"litellm_provider db_model tier health_check_model disable_background_health_check created_at updated_at",
	"models of all environments are in the file":                                     "supported_environments",
	"a model of one team: list it in models of its keys, and not in those of others": "team_id",
	"callers use the model_name":                                                     "team_public_model_name",
})
