package config

import (
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
	MetricsOff     bool          // no Prometheus metrics; otherwise the admin listener has them
	Identifiers    int           // how many keys of each policy have metrics of their own: 0 means 20, negative none
	RawIdentifiers bool          // metrics show keys as they are
	Salt           Secret        // for the hashes of keys in metrics, logs and webhooks, the same in all processes; none: a random one at each start
	RefusalsEvery  time.Duration // at most one warning of a limit's refusals per this time; 0 means a minute
	Watch          []Watched     // buckets, of policies with many keys, whose usage metrics show
	Webhook        Webhook
	CloudWatch     CloudWatch
}

// Watched is a bucket whose usage the metrics show.
type Watched struct {
	Policy, Tenant, Key string

	Name string // shows in metrics; "" means the key's hash
}

// Webhook configures the webhook that receives warnings.
type Webhook struct {
	URL        string   // none if empty; in what [Load] and [Parse] return also if Address names it
	Address    Secret   // where the URL is, if it is a secret
	Secret     Secret   // signs what is sent
	Kinds      []string // of the warnings that are sent, see docs/configuration.md; none means all
	Milestones []int    // milestones of usage that are sent, in per cent of a limit: some of 50, 80, 95 and 100; none means all
}

func (d *decoder) telemetry(e entry) {
	t := &d.config.Telemetry
	d.settings(e.value, "telemetry", "telemetry", t.settings(d))
	if t.Salt.Env != "" && t.Salt.File != "" {
		d.problem(e.at, "leave one of them out", "telemetry has both salt_env and salt_file")
	}
}

func (t *Telemetry) settings(d *decoder) []setting {
	var identifiers, watch node
	if t.Identifiers != 0 {
		identifiers.scalar = strconv.Itoa(max(0, t.Identifiers))
	}
	for i := range t.Watch {
		watch.list = append(watch.list, settingsNode(t.Watch[i].settings(d)))
	}
	return append([]setting{
		{"metrics", func(e entry) { t.MetricsOff = !d.boolean(e) }, wordNode(t.MetricsOff, "false")},
		{"identifiers", func(e entry) {
			if t.Identifiers = int(d.integer(e, 0, maxIdentifiers)); t.Identifiers == 0 {
				t.Identifiers = -1
			}
		}, identifiers},
		{"raw_identifiers", func(e entry) { t.RawIdentifiers = d.boolean(e) }, flagNode(t.RawIdentifiers)},
		{"refusals_every", func(e entry) { t.RefusalsEvery = d.between(e, time.Second, maxStep) }, durationNode(t.RefusalsEvery)},
		{"watch", func(e entry) { t.Watch = d.watch(e) }, watch},
		{"webhook", func(e entry) { t.Webhook = d.webhook(e) }, settingsNode(t.Webhook.settings(d))},
		{"cloudwatch", func(e entry) { t.CloudWatch = d.cloudWatch(e) }, settingsNode(t.CloudWatch.settings(d))},
	}, t.Salt.settings(d, "salt")...)
}

func (w *Watched) settings(d *decoder) []setting {
	return []setting{
		{"policy", func(e entry) { w.Policy = d.short(e) }, textNode(w.Policy)},
		{"tenant", func(e entry) { w.Tenant = d.short(e) }, textNode(w.Tenant)},
		{"key", func(e entry) { w.Key = d.short(e) }, textNode(w.Key)},
		{"name", func(e entry) { w.Name = d.ruleName(e) }, textNode(w.Name)},
	}
}

func (d *decoder) watch(e entry) (list []Watched) {
	items, _ := d.list(e, maxWatched)
	for _, n := range items {
		var w Watched
		before := len(d.problems)
		seen := d.settings(n, "a watched bucket", "", w.settings(d))
		if (!seen["policy"] || !seen["key"]) && len(d.problems) == before {
			d.missing(spanOf(n), "such as {policy: api, key: global}", "a watched bucket needs policy and key")
		}
		list = append(list, w)
	}
	return list
}

func (d *decoder) webhook(e entry) (w Webhook) {
	before := len(d.problems)
	d.settings(e.value, "webhook", "", w.settings(d))
	wrong := len(d.problems) > before
	if given := count(w.URL, w.Address.Env, w.Address.File); given != 1 && !wrong {
		d.missing(spanOf(e.value), "give it url, url_env or url_file", "webhook needs one URL, not %d", given)
	}
	d.oneSecret(spanOf(e.value), "webhook", "secret", "", w.Secret, wrong)
	return w
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

func (w *Webhook) settings(d *decoder) []setting {
	list := []setting{
		{"url", func(e entry) {
			d.hideValue(e.value) // the receiver may treat it as a secret
			w.URL = d.link(e)
		}, textNode(w.shownURL())},
		{"milestones", func(e entry) { w.Milestones = d.milestones(e) }, percentsNode(w.Milestones)},
		{"kinds", func(e entry) {
			d.texts(e, len(warningKinds), func(e entry) {
				if kind := d.oneOf(e, warningKinds...); kind != "" && !slices.Contains(w.Kinds, kind) {
					w.Kinds = append(w.Kinds, kind)
				}
			})
		}, texts(w.Kinds)},
	}
	list = append(list, w.Address.settings(d, "url")[:2]...)
	return append(list, w.Secret.settings(d, "secret")...)
}

// warningKinds are the kinds of warnings of package telemetry.
var warningKinds = []string{"milestone", "limit_exceeded", "backend_error", "fallback_activated", "fallback_ended", "shadow_divergence", "circuit_opened", "circuit_closed", "store_lost", "incident"}

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
