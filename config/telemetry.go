package config

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

const (
	maxIdentifiers = 1000
	maxWatched     = 100
)

// Telemetry configures metrics, warnings and webhooks.
type Telemetry struct {
	MetricsOff     bool // no Prometheus metrics; otherwise the admin listener has them
	Identifiers    int  // how many keys of each policy have metrics of their own: 0 means 20, negative none
	RawIdentifiers bool // metrics show keys as they are
	// for the hashes of keys in metrics, logs and webhooks, the same in all processes; none: a
	// random one at each start
	Salt          Secret
	RefusalsEvery time.Duration // at most one warning of a limit's refusals per this time; 0 means a minute
	Watch         []Watched     // buckets, of policies with many keys, whose usage metrics show
	Webhook       Webhook
	CloudWatch    CloudWatch
}

// Watched is a bucket whose usage the metrics show.
type Watched struct {
	Policy, Tenant, Key string

	Name string // shows in metrics; "" means the key's hash
}

// Webhook configures the webhook that receives warnings.
type Webhook struct {
	URL     string   // none if empty; in what [Load] and [Parse] return also if Address names it
	Address Secret   // where the URL is, if it is a secret
	Secret  Secret   // signs what is sent
	Kinds   []string // of the warnings that are sent, see docs/configuration.md; none means all
	// milestones of usage that are sent, in per cent of a limit: some of 50, 80, 95 and 100; none
	// means all
	Milestones []int
}

var telemetrySection = &section[Telemetry]{
	name: "telemetry", what: "telemetry", noted: "telemetry", settings: (*Telemetry).settings,
	check: func(d *decoder, e entry, t *Telemetry, _ map[string]bool, _ bool) {
		if t.Salt.Env != "" && t.Salt.File != "" {
			d.problem(e.at, "leave one of them out", "telemetry has both salt_env and salt_file")
		}
	},
}

func (t *Telemetry) settings() []setting {
	identifiers := number[int](0, maxIdentifiers)
	identifiers.node = func(n int) node { return wordNode(n != 0, strconv.Itoa(max(0, n))) }
	identifiers = readBy(identifiers, func(d *decoder, e entry) int {
		return cmp.Or(int(d.integer(e, 0, maxIdentifiers)), -1) // 0 means the default
	})
	watch := bounded(many(watchSection, maxWatched), fmt.Sprintf("at most %d", maxWatched))
	return append([]setting{
		{"metrics", asOff.to(&t.MetricsOff), yes, "Prometheus metrics, on the admin listener"},
		{"identifiers", identifiers.to(&t.Identifiers), "20", "how many keys of each policy have metrics of their own"},
		{"raw_identifiers", asFlag.to(&t.RawIdentifiers), no, "metrics show keys in clear. They may be personal data " +
			"or secrets"},
		{"refusals_every", between(time.Second, maxStep).to(&t.RefusalsEvery), "1m", "at most one warning about " +
			"refusals by one limit per this time, with their number"},
		{"watch", watch.to(&t.Watch), "", "buckets, of policies with many keys, whose usage the metrics show"},
		{"webhook", hookSection.to(&t.Webhook), none, "where signed webhook calls go"},
		{"cloudwatch", cloudWatchSection.to(&t.CloudWatch), none, "metrics of Amazon CloudWatch: either `emf` or " +
			"`put`"},
	}, t.Salt.settings("salt", "a random one at each start",
		"the secret that hides keys in metrics, logs and webhooks. With the same secret in all processes a key "+
			"has the same hash everywhere. `serve` warns if there is none, unless it does not share its store "+
			"(memory, or `instances` is 1)")...)
}

var watchSection = &section[Watched]{
	name: "watched", what: "a watched bucket", settings: (*Watched).settings,
	lacks: "a watched bucket needs policy and key",
	hint:  "such as {policy: api, key: global}",
}

func (w *Watched) settings() []setting {
	return []setting{
		{"policy", asShort.to(&w.Policy), required, "the policy"},
		{"tenant", asShort.to(&w.Tenant), "", "the tenant"},
		{"key", asShort.to(&w.Key), required, "the key"},
		{"name", asName.to(&w.Name), "the key's hash", "what metrics call it"},
	}
}

var hookSection = &section[Webhook]{
	name: "webhook", what: "webhook", settings: (*Webhook).settings,
	more: schema{"allOf": []schema{
		{"oneOf": need("secret_env", "secret_file")}, {"oneOf": need("url", "url_env", "url_file")},
	}},
	check: func(d *decoder, e entry, w *Webhook, _ map[string]bool, wrong bool) {
		if given := count(w.URL, w.Address.Env, w.Address.File); given != 1 && !wrong {
			d.missing(spanOf(e.value), "give it url, url_env or url_file", "webhook needs one URL, not %d", given)
		}
		d.oneSecret(spanOf(e.value), "webhook", "secret", false, w.Secret, wrong)
	},
}

// shownURL returns the URL without its user and password, and without its path, which is a secret
// with some services.
func (w *Webhook) shownURL() string {
	if w.URL == "" || w.Address != (Secret{}) {
		return ""
	}
	u, err := url.Parse(w.URL)
	if err != nil {
		return redacted
	}
	shown := u.Scheme + "://"
	if u.User != nil {
		shown += redacted + "@"
	}
	if shown += u.Host; len(u.Path+u.RawQuery) > 1 {
		shown += "/…"
	}
	return shown
}

func (w *Webhook) settings() []setting {
	link := textBy((*decoder).link, httpURL).to(&w.URL)
	readLink := link.read
	link.read = func(d *decoder, e entry) {
		d.hideValue(e.value) // the receiver may treat it as a secret
		readLink(d, e)
	}
	link.node = func() node { return textNode(w.shownURL()) }
	kinds := once(oneOrMore(words(warningKinds...), len(warningKinds)))
	list := []setting{
		{"url", link, oneOfThree, "the target: `http` or `https`. For some services the URL is a secret, so only its " +
			"host is ever shown"},
		{"milestones", asMilestones.to(&w.Milestones), "all", "which milestones of use are reported: of `50%`, " +
			"`80%`, `95%`, `100%`"},
		{"kinds", kinds.to(&w.Kinds), "all", "which warnings are reported: `" + strings.Join(warningKinds, "`, `") +
			"`"},
	}
	list = append(list, w.Address.settings("url", oneOfThree, "the URL, if that is a secret")[:2]...)
	return append(list, w.Secret.settings("secret", oneOfTwo,
		"the secret that signs the calls, of at least 16 bytes")...)
}

var asMilestones = form[[]int]{
	read: (*decoder).milestones,
	node: func(list []int) (n node) {
		for _, p := range list {
			n.list = append(n.list, node{scalar: strconv.Itoa(p) + "%"})
		}
		return n
	},
	schema: listOf(enum("50%", "80%", "95%", "100%"), len(milestones)),
}

// warningKinds are the kinds of warnings of package telemetry.
var warningKinds = []string{
	"milestone", "limit_exceeded", "backend_error", "fallback_activated", "fallback_ended",
	"shadow_divergence", "circuit_opened", "circuit_closed", "store_lost", "incident",
}

var milestones = []int{50, 80, 95, 100}

// milestones reads a list such as [80%, 100%].
func (d *decoder) milestones(e entry) (list []int) {
	items, _ := d.list(e, len(milestones))
	for _, n := range items {
		text := ""
		if s, ok := n.(*ast.StringNode); ok {
			text = s.Value
		}
		percent, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
		if err != nil || !strings.HasSuffix(text, "%") || !slices.Contains(milestones, percent) {
			d.problem(spanOf(n), "", "milestones must be some of 50%%, 80%%, 95%% and 100%%, not %s", describe(n))
			continue
		}
		if !slices.Contains(list, percent) {
			list = append(list, percent)
		}
	}
	slices.Sort(list)
	return list
}
