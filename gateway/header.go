package gateway

import (
	"cmp"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/llm"
)

// Headers of this gateway: of requests, and of answers.
const (
	HeaderPriority = "Drawgate-Priority" // 0 to 9, at most the key's
	HeaderTimeout  = "Drawgate-Timeout"  // longest wait in the queue: seconds, or a duration such as 1m30s; 0 for none
	HeaderCache    = "Drawgate-Cache"    // CacheHit or CacheStale: the answer is from the cache
	// the model that answered in place of the one that was asked for, or that an alias stands for;
	// upstream/model if it is of another upstream than the path's.
	HeaderModel  = "Drawgate-Model"
	HeaderQueued = "Drawgate-Queued-Ms" // how long the call waited to be granted, in milliseconds
	// how much of the fullest limit in money is used, in per cent, from softBudget on.
	HeaderBudget = "Drawgate-Budget-Used"
)

// softBudget is the part of a budget, in per cent, from which callers are told how much is used.
const softBudget = 80

// Values of HeaderCache.
const (
	CacheHit   = "hit"
	CacheStale = "stale" // it is older than it should be: the quota is exhausted
)

// hop are headers of one connection (RFC 9110, section 7.6.1), and those that make others so.
var hop = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// credentials are headers that carry keys: those of the providers' SDKs, of Azure, and of browsers.
var credentials = append([]string{authorization, "Cookie", "Proxy-Authorization"}, plainKeys...)

const authorization = "Authorization"

// plainKeys are the headers that have nothing but a key. Azure's is the last one.
var plainKeys = append(slices.DeleteFunc(llm.KeyHeaders(), func(name string) bool { return name == authorization }),
	"Api-Key")

// private are headers of callers that providers do not get: they say where the caller is or whose
// quota is used, or let a request do something else than its path and method say. Those of Helicone
// and Portkey, proxies that may be an upstream, name the server that gets the call, with the
// provider's key.
var private = append(llm.PrivateHeaders(),
	"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via",
	"X-Http-Method-Override", "X-Http-Method", "X-Method-Override",
	"X-Original-Url", "X-Rewrite-Url",
	"Helicone-Target-Url", "Helicone-Openai-Api-Base", "X-Portkey-Custom-Host",
	"Accept-Encoding", "Expect", "Content-Length", "Host", HeaderPriority, HeaderTimeout,
)

// ownSite are headers of answers that are about the provider's site or the account there, not about
// the call, or that send callers past the gateway.
var ownSite = append(llm.AccountHeaders(),
	"Set-Cookie", "Alt-Svc", "Strict-Transport-Security", HeaderCache, HeaderModel, HeaderQueued, HeaderBudget,
	"Location", "Content-Location", "Operation-Location", "Azure-Asyncoperation", "Refresh",
)

// untold are headers of requests that do not change an answer: two calls that differ in them alone
// are the same to the cache. Those of SDKs that begin with X-Stainless- are as well.
var untold = []string{
	"User-Agent", "Cache-Control", "Pragma", "Traceparent", "Tracestate", "Baggage",
	"X-Request-Id", "X-Client-Request-Id", "Idempotency-Key", "X-Goog-Api-Client",
}

// What is removed from requests and from answers.
var (
	notPassed   = setOf(credentials, private, hop)
	notAnswered = setOf(ownSite, hop)
)

func setOf(lists ...[]string) map[string]bool {
	set := map[string]bool{}
	for _, name := range slices.Concat(lists...) {
		set[name] = true
	}
	return set
}

// remove removes headers, and those that Connection names.
func remove(h http.Header, names map[string]bool) {
	for _, v := range h["Connection"] {
		for name := range strings.SplitSeq(v, ",") {
			h.Del(textproto.TrimString(name))
		}
	}
	maps.DeleteFunc(h, func(name string, _ []string) bool { return names[name] })
}

// withoutKeys returns the headers without keys. It shares their values with h.
func withoutKeys(h http.Header) http.Header {
	h = maps.Clone(h)
	for _, name := range credentials {
		delete(h, name)
	}
	return h
}

// keyHeader returns the header in which a provider wants its key.
func (u *Upstream) keyHeader() string {
	return cmp.Or(u.KeyHeader, u.Profile.KeyHeader())
}

// passed returns the headers of a caller that the provider gets.
func (u *Upstream) passed(in http.Header) http.Header {
	h := in.Clone()
	remove(h, notPassed)
	for _, name := range u.Profile.OwnerHeaders {
		h.Del(name)
	}
	for name := range h {
		if strings.Contains(name, "_") { // to some servers X_Api_Key is X-Api-Key
			delete(h, name)
		}
	}
	return h
}

// outHeader returns the headers of a call to the provider.
func (u *Upstream) outHeader(in http.Header) http.Header {
	h := u.passed(in)
	if u.Key != "" {
		value := string(u.Key)
		if name := u.keyHeader(); http.CanonicalHeaderKey(name) == authorization {
			h.Set(name, "Bearer "+value)
		} else {
			h.Set(name, value)
		}
	}
	if _, ok := h["User-Agent"]; !ok {
		h["User-Agent"] = nil // none, rather than Go's
	}
	return h
}

// secretOf returns the virtual key that a request shows: where the providers' SDKs put theirs.
func secretOf(r *http.Request) string {
	if v := r.Header.Get(authorization); v != "" {
		scheme, secret, _ := strings.Cut(v, " ")
		if strings.EqualFold(scheme, "Bearer") {
			return strings.TrimSpace(secret)
		}
	}
	for _, name := range plainKeys {
		if v := r.Header.Get(name); v != "" {
			return v
		}
	}
	return r.URL.Query().Get("key")
}

// outQuery returns a query without keys, and without what would cut the usage out of the answer.
func outQuery(raw string, p *llm.Profile) string {
	if raw == "" {
		return ""
	}
	drop := []string{"key", "access_token", "oauth_token"}
	var kept []string
	for part := range strings.SplitSeq(raw, "&") {
		name, _, _ := strings.Cut(part, "=")
		plain, err := url.QueryUnescape(name)
		control := func(r rune) bool { return r <= ' ' || r == 0x7f }
		dropped := slices.Contains(drop, plain) || p.PrivateParam(plain)
		if err != nil || part == "" || dropped || strings.ContainsFunc(part, control) {
			continue
		}
		kept = append(kept, part)
	}
	return strings.Join(kept, "&")
}

// warnOfBudget tells a caller that a limit in money is nearly used up.
func (x *exchange) warnOfBudget(h http.Header, d *drawgate.Decision) {
	prices := x.state.config.Prices
	if prices == nil {
		return
	}
	used, money := 0, prices.Unit()
	for l := range d.Limits() {
		if l.Limit.Unit == money {
			used = max(used, 100-int(100*l.Part()))
		}
	}
	if used >= softBudget {
		h.Set(HeaderBudget, strconv.Itoa(used))
	}
}

// client returns the address of the caller of a request.
func (h *Handler) client(r *http.Request) netip.Addr { return h.opts.Proxies.ClientIP(r) }

// header returns the headers of the request without the one in which proxies name the caller.
func (x *exchange) header() http.Header {
	name := x.h.opts.Proxies.Header()
	if _, ok := x.r.Header[name]; !ok {
		return x.r.Header
	}
	h := maps.Clone(x.r.Header)
	delete(h, name)
	return h
}
