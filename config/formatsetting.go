package config

import (
	"net/url"
	"strconv"
	"time"
)

// general returns the settings at the top level, without the store and the policies.
func (c *Config) general() (b mapping) {
	if c.Off {
		b.add("enabled", "false")
	}
	b.number("max_buckets", int64(c.MaxBuckets))
	b.node("instances", c.Instances.node())
	b.duration("store_timeout", c.StoreTimeout)
	b.duration("warn_every", c.WarnEvery)
	b.flag("start_full", c.StartFull)
	return b
}

// sections returns the settings that have mappings of their own. With hide, values that may be
// secrets are left out.
func (c *Config) sections(hide bool) (b mapping) {
	b.node("api_keys", node{pairs: c.APIKeys.items()})
	b.node("queue", node{pairs: c.Queue.items()})
	b.node("server", node{pairs: c.Server.items()})
	b.node("envoy", node{pairs: c.Envoy.items()})
	b.node("telemetry", node{pairs: c.Telemetry.items(hide)})
	return b
}

func (m *mapping) duration(key string, d time.Duration) {
	if d != 0 {
		m.add(key, formatDuration(d))
	}
}

func (k *APIKeys) items() (b mapping) {
	b.text("header", k.Header)
	b.text("default", k.Default)
	var classes mapping
	for _, class := range k.names() {
		classes.node(quote(class), texts(k.hashes(class)))
	}
	b.node("classes", node{pairs: classes})
	return b
}

func (q *Queue) items() (b mapping) {
	b.number("max_depth", int64(q.MaxDepth))
	b.duration("retry_delay", q.RetryDelay)
	b.number("max_attempts", int64(q.MaxAttempts))
	if q.Multiplier != 0 {
		b.add("multiplier", strconv.FormatFloat(q.Multiplier, 'f', -1, 64))
	}
	return b
}

func (s *Server) items() (b mapping) {
	b.text("listen", s.Listen)
	b.text("admin", s.Admin)
	b.text("grpc", s.GRPC)
	var tls, proxies mapping
	tls.text("cert", s.TLS.Cert)
	tls.text("key", s.TLS.Key)
	tls.text("client_ca", s.TLS.ClientCA)
	b.node("tls", node{pairs: tls})
	var tokens node
	for i := range s.Tokens {
		tokens.list = append(tokens.list, node{pairs: s.Tokens[i].items()})
	}
	b.node("tokens", tokens)
	b.flag("insecure", s.Insecure)
	proxies.node("trusted", networksNode(s.Proxies.Trusted))
	proxies.text("header", s.Proxies.Header)
	proxies.flag("unix", s.Proxies.Unix)
	b.node("proxies", node{pairs: proxies})
	b.node("forward_auth", node{pairs: s.ForwardAuth.items()})
	return b
}

func (f *ForwardAuth) items() (b mapping) {
	b.number("status", int64(f.Status))
	b.flag("allow_away", f.AllowAway)
	b.node("shared", texts(f.Shared))
	b.node("describe", texts(f.Describe))
	b.text("uri_header", f.URI)
	b.text("method_header", f.Method)
	b.text("host_header", f.Host)
	b.text("user_header", f.User)
	b.text("class_header", f.Class)
	return b
}

func (t *Token) items() (b mapping) {
	b.text("name", t.Name)
	if len(t.Roles) == 1 {
		b.text("role", string(t.Roles[0]))
	} else {
		b.node("role", texts(t.Roles))
	}
	b.text("tenant", t.Tenant)
	if t.Secret == (Secret{}) {
		b.text("sha256", t.Digest())
	}
	b.secret("token", t.Secret)
	return b
}

// secret adds the location of a secret.
func (m *mapping) secret(word string, s Secret) {
	m.text(word+"_env", s.Env)
	m.text(word+"_file", s.File)
}

func (v *Envoy) items() (b mapping) {
	b.node("configs", texts(v.Configs))
	b.flag("merge", v.Merge)
	if v.Aligned {
		b.add("windows", "aligned")
	}
	b.flag("refunds", v.Refunds)
	if v.Errors {
		b.add("on_store_failure", "error")
	}
	b.flag("shadow", v.Shadow)
	if v.OwnHits {
		b.add("reports", "own-hits")
	}
	b.text("headers", string(v.Headers))
	b.text("limit_header", v.LimitHeader)
	b.text("remaining_header", v.RemainingHeader)
	b.text("reset_header", v.ResetHeader)
	b.flag("shadow_header", v.ShadowHeader)
	b.flag("metadata", v.Metadata)
	return b
}

func (t *Telemetry) items(hide bool) (b mapping) {
	if t.MetricsOff {
		b.add("metrics", "false")
	}
	if t.Identifiers != 0 {
		b.add("identifiers", strconv.Itoa(max(0, t.Identifiers)))
	}
	b.flag("raw_identifiers", t.RawIdentifiers)
	b.secret("salt", t.Salt)
	b.duration("refusals_every", t.RefusalsEvery)
	var watch node
	for _, w := range t.Watch {
		var m mapping
		m.text("policy", w.Policy)
		m.text("tenant", w.Tenant)
		m.text("key", w.Key)
		m.text("name", w.Name)
		watch.list = append(watch.list, node{pairs: m})
	}
	b.node("watch", watch)
	b.node("webhook", node{pairs: t.Webhook.items(hide)})
	return b
}

// items hides the path of the URL, which is a secret with some services.
func (w *Webhook) items(hide bool) (b mapping) {
	link := w.URL
	if w.Address != (Secret{}) {
		link = ""
	}
	if u, err := url.Parse(link); hide && err == nil && len(u.Path+u.RawQuery) > 1 {
		link = u.Scheme + "://" + u.Host + "/…"
	}
	b.text("url", link)
	b.secret("url", w.Address)
	b.secret("secret", w.Secret)
	var marks node
	for _, m := range w.Milestones {
		marks.list = append(marks.list, node{scalar: strconv.Itoa(m) + "%"})
	}
	b.node("milestones", marks)
	b.node("kinds", texts(w.Kinds))
	return b
}
