package fromlitellm

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/internal/pattern"
)

// upstream is an account of a provider.
type upstream struct {
	name    string
	profile string
	url     string // "" is the profile's
	v1      bool   // callers write /v1 behind its name, as SDKs do
	key     string // the variable; "" sends none
	prefix  string // LiteLLM's, of its first model
	timeout string // "" is the default
	retries int
	entries []*entry

	account  string   // what tells it from others
	timeouts []string // of its deployments
}

// entry is a model of an upstream.
type entry struct {
	*value    // where it was found
	up        *upstream
	model     string // or "prefix*"
	policy    string
	limits    []limit
	fallbacks []string
	price     *price
}

// target is the name of the model, for aliases and keys.
func (e *entry) target() string { return e.up.name + "/" + e.model }

// deployment is an entry of model_list.
type deployment struct {
	*value
	group   string // model_name
	entry   *entry
	weights [len(weightKeys)]int64 // 0: it has none
	access  []string
}

// group is all deployments of a model_name.
type group struct {
	*value
	name    string
	entries []*entry // the first one decides about its dialect
	weights []int64
	first   *deployment
	access  []string
	alias   string // "" if callers use the model's own name
}

// alias is a name for models.
type alias struct {
	name    string
	entries []*entry
	weights []int64
}

// modelList reads model_list.
func (c *conversion) modelList(v *value) error {
	for i, item := range v.list {
		if item.kind != isTable {
			c.leave(item, "model_list", "entry %d is not a mapping with model_name and litellm_params", i+1)
			continue
		}
		if d := c.deployment(item); d != nil {
			c.deployments = append(c.deployments, d)
		}
	}
	if len(c.deployments) == 0 {
		return &Error{
			File: v.file, Line: v.line, Column: 1,
			Message: "no model of model_list can be used here: " + c.firstReason(),
		}
	}
	for _, u := range c.upstreams {
		u.sort()
		u.timeout = c.oneTimeout(u)
	}
	return nil
}

// firstReason says why the first model was left out.
func (c *conversion) firstReason() string {
	for _, n := range c.left {
		if strings.HasPrefix(n.What, "model ") || n.What == "model_list" {
			return n.What + ": " + n.Why
		}
	}
	return "it is empty"
}

// sort puts names before patterns, and longer patterns before shorter ones: the first entry that
// fits decides here, and in LiteLLM the one that says most.
func (u *upstream) sort() {
	slices.SortStableFunc(u.entries, func(a, b *entry) int {
		pattern := func(e *entry) int {
			if strings.HasSuffix(e.model, "*") {
				return 1 + 1000 - min(len(e.model), 1000)
			}
			return 0
		}
		return cmp.Compare(pattern(a), pattern(b))
	})
}

// deployment reads an entry of model_list; nil if it is left out.
func (c *conversion) deployment(v *value) *deployment {
	name, params := v.get("model_name"), v.get("litellm_params")
	model := params.get("model")
	if name == nil || model == nil || name.kind != isText || model.kind != isText {
		c.leave(v, "model_list", "an entry needs model_name, and litellm_params with model")
		return nil
	}
	model = &value{file: v.file, line: v.line, kind: isText, text: cmp.Or(c.resolved(model), model.text)}
	var why string
	switch {
	case keyLike().MatchString(name.text), keyLike().MatchString(model.text):
		why = "the name looks like a secret"
	case !modelNames().MatchString(name.text), !modelNames().MatchString(model.text):
		why = "a name has 1 to 128 characters that can be seen, no blanks, and a * only at its end"
	default:
		var e *entry
		if e, why = c.entry(v, params, model.text); why == "" {
			d := &deployment{value: v, group: name.text, entry: e}
			c.details(d, params)
			return d
		}
	}
	c.leave(model, "model "+show(name.text)+" ("+show(model.text)+")", "%s", why)
	return nil
}

var modelNames = pattern.New(`^[!-)+-~]{1,128}$|^[!-)+-~]{0,127}\*$`)

// entry returns the model of a deployment, with the account that it is of, or why there is none.
func (c *conversion) entry(v, params *value, model string) (e *entry, why string) {
	custom := params.get("custom_llm_provider")
	prefix, name := provider(model, custom.plain())
	at, ok := places[prefix]
	switch {
	case prefix == "os.environ":
		return nil, "its model is in an environment variable: write the name"
	case model == "*":
		return nil, "it stands for models of every provider: name the providers, such as openai/*"
	case prefix == "", name == "":
		return nil, "its provider is not named: write openai/MODEL, anthropic/MODEL or gemini/MODEL"
	case !ok:
		return nil, whyForeign(prefix)
	case v.get("blocked").yes(), v.get("model_info").get("blocked").yes():
		return nil, "it is blocked"
	case strings.HasPrefix(name, "responses/"):
		return nil, "LiteLLM makes a call of the Responses API of a chat completion: calls are not translated"
	}
	for _, other := range uncounted {
		if mode := v.get("model_info").get("mode").plain(); mode == other {
			return nil, "no quota counts calls of the mode " + mode + ": list their paths in others of the upstream"
		}
	}
	u, why := c.upstream(prefix, at, params)
	if u == nil {
		return nil, why
	}
	if e = c.model(u, v, name); e == nil {
		return nil, fmt.Sprintf("an upstream can have %d models", maxModels)
	}
	return e, ""
}

// What a configuration can have: an upstream of models, and the gateway of upstreams and aliases.
const (
	maxModels    = 1000
	maxUpstreams = 100
	maxAliases   = 1000
)

// uncounted are modes whose calls a quota does not count here.
var uncounted = []string{
	"image_generation", "image_edit", "audio_transcription", "audio_speech", "rerank", "moderation", "moderations",
	"realtime", "batch", "video_generation", "ocr", "search", "vector_store", "guardrail",
}

// plain returns a text; "" of anything else.
func (v *value) plain() string {
	if v == nil || v.kind != isText {
		return ""
	}
	return v.text
}

// model returns the entry of an upstream's model, and makes it if there is none; nil if there are
// too many.
func (c *conversion) model(u *upstream, v *value, name string) *entry {
	for _, e := range u.entries {
		if e.model == name {
			return e
		}
	}
	if len(u.entries) == maxModels {
		return nil
	}
	e := &entry{value: v, up: u, model: name}
	u.entries = append(u.entries, e)
	return e
}

// upstream returns the account of a deployment, and makes it if there is none; nil and why if it
// cannot be called.
func (c *conversion) upstream(prefix string, at place, params *value) (u *upstream, why string) {
	base := at.url
	link, v1 := "", at.profile != "gemini"
	if given := cmp.Or(params.get("api_base"), params.get("base_url")); given != nil {
		base = c.resolved(given)
		if base == "" {
			return nil, "its address is in an environment variable, and a url cannot be: write the address into api_base"
		}
	} else if at.key == "" {
		return nil, "it has no api_base, and the provider no address that is known here"
	}
	if base != "" {
		var ok bool
		if link, v1, ok = address(at.profile, base); !ok {
			return nil, "api_base is not an http or https URL without user, query and fragment"
		}
	}
	key := c.keyOf(params.get("api_key"))
	account := strings.Join([]string{at.profile, link, key.account}, "\n")
	for _, u := range c.upstreams {
		if u.account == account {
			return u, ""
		}
	}
	if len(c.upstreams) == maxUpstreams {
		return nil, fmt.Sprintf("there can be %d upstreams", maxUpstreams)
	}
	u = &upstream{profile: at.profile, url: link, v1: v1, account: account, prefix: prefix, retries: max(c.retries, 0)}
	u.name = c.upstreamName(prefix)
	u.key = c.keyVariable(key, prefix, at, u)
	c.upstreams = append(c.upstreams, u)
	return u, ""
}

// upstreamName returns a name that no upstream has.
func (c *conversion) upstreamName(prefix string) string {
	taken := map[string]bool{}
	for _, u := range c.upstreams {
		taken[u.name] = true
	}
	if prefix == "text-completion-openai" {
		prefix = "openai"
	}
	return unused(prefix, "-", taken)
}

// resolved returns a text, or what the file itself sets the variable to that it names; "" if that
// is not known.
func (c *conversion) resolved(v *value) string {
	if name, ok := v.fromEnvironment(); ok {
		return c.given[name].plain()
	}
	return v.plain()
}

// accountKey is the provider's key of a deployment.
type accountKey struct {
	*value
	variable string // that the file names; "" if the key itself is there, or nothing
	account  string // tells accounts apart; it may be the key itself, and never leaves this package
}

func (c *conversion) keyOf(v *value) accountKey {
	if name, ok := v.fromEnvironment(); ok {
		return accountKey{v, name, "$" + name}
	}
	return accountKey{v, "", "=" + v.plain()}
}

// minSecret is the length of the shortest secret that a configuration accepts, in bytes.
const minSecret = 16

// keyVariable returns the variable for the key of an upstream.
func (c *conversion) keyVariable(k accountKey, prefix string, at place, u *upstream) string {
	name := cmp.Or(at.key, variableName(prefix)+"_API_KEY")
	switch {
	case k.variable != "":
		c.need(k.variable, "the key of upstream "+u.name+", as before")
		return k.variable
	case k.value == nil && at.key != "":
		c.need(name, "the key of upstream "+u.name+", as before: LiteLLM reads it too")
		return name
	case k.value == nil:
		return ""
	case len(k.text) < minSecret:
		c.leave(k.value, "api_key", "it has fewer than %d bytes, so none is sent to upstream %s", minSecret, u.name)
		return ""
	}
	return c.variable(name, "the key of upstream %s: it is in %s, line %d", u.name, k.file, k.line)
}
