package gateway

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/outbound"
)

// Config says whom a [Handler] serves, and where calls go. It is not changed after it was given to
// a Handler.
type Config struct {
	Upstreams []Upstream
	Keys      []Key
	Tokens    []TokenIssuer // whose signed tokens are keys as well
	Aliases   []Alias
	Prices    *llm.Prices // nil: nothing is counted in money. With it, a model without a price is refused
}

// Upstream is one account of a provider.
type Upstream struct {
	Name      string       // the first segment of callers' paths: letters, digits, - and _
	Profile   *llm.Profile // what the provider counts, and how it says so
	URL       *url.URL     // callers' paths, without the name, are appended to it
	Key       Secret       // the provider's API key; "" sends none
	KeyHeader string       // the header that carries Key; "" means the provider's own
	Owner     string       // whose quota it is: the key of the policies' buckets; "" means Name

	Models  []Model // which one counts a call says [llm.Profile.Entry]; what fits none is refused
	Likely  bool    // reserve what a call will likely use, and learn from its answer; otherwise the most that it can
	Breaker outbound.Breaker
	Retries int           // how often a call that failed, or was refused for the quota, is made again
	Hold    time.Duration // how long units stay held if this process dies; 0 means 30s
	// Others are paths that are passed on though no quota counts them, exact or with a * at the
	// end, such as /v1/files and /v1/files/*
	Others   []string
	Stored   *Stored       // nil: no call for what is stored passes
	Silence  time.Duration // longest time without anything from the provider, 0 means 10m
	Duration time.Duration // longest time of a whole answer, 0 means 1h
}

// Model says how calls of some models are counted, and what may take their place.
type Model struct {
	Name   string // exact, or "prefix*"; "*" is any
	Policy string // of the engine
	Cache  Cache

	// Fallbacks are tried in this order while the quota is exhausted: models of the same upstream,
	// or "upstream/model" of another one with the same profile. A name whose first segment is an
	// upstream's is of that one. Each is counted by its own entry.
	Fallbacks []string
}

// Cache says which answers are kept, for calls that are the same byte for byte.
type Cache struct {
	TTL    time.Duration // how long an answer is given again; 0: answers are not kept
	Stale  time.Duration // how much longer it is given while the quota is exhausted
	Shared bool          // between callers with different keys
}

// Key is a virtual key: what a caller shows in place of the provider's key.
type Key struct {
	Name  string            // for limits, logs and metrics; unique
	Sum   [sha256.Size]byte // SHA-256 of its secret
	Team  string            // what rules see: attrs.team
	User  string            // user
	Class string            // class

	// Secrets are several secrets, in place of Sum. To change a secret without a lost call, add the
	// new one, give the old one an end, and let callers change before it.
	Secrets  []KeySecret
	Expires  time.Time // its calls pass before this instant; zero: it has no end
	Disabled bool      // none of its calls pass

	// the highest that its calls may have, and the one that they have; 0 to drawgate.MaxPriority
	Priority int
	// what it may use: "upstream/model", with * at the end, or the name of an alias; none means
	// everything
	Models []string
	// Others are those of the upstreams' Others that it may use: "upstream/path", with * at the
	// end; none means all.
	Others []string
	// Paths are those of all calls that it may make, written like Others; none means all.
	Paths []string
	// Addresses are the networks in which its callers must be, as [Options].Proxies name them; none
	// means all.
	Addresses []netip.Prefix

	issuer string // of the token that it is of; "": it has secrets
}

// Secret is a text that is not printed.
type Secret string

// String says that it is a secret.
func (Secret) String() string { return "(secret)" }

// GoString says that it is a secret.
func (Secret) GoString() string { return "(secret)" }

// LogValue says that it is a secret.
func (Secret) LogValue() slog.Value { return slog.StringValue("(secret)") }

// fits reports whether a name is that of a pattern.
func fits(pattern, name string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return pattern == name
}

// listed reports whether a name is that of one of the patterns.
func listed(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return fits(pattern, name) })
}

// check returns all mistakes.
func (c *Config) check() error {
	var errs []error
	names := map[string]bool{}
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		if names[u.Name] {
			errs = append(errs, fmt.Errorf("gateway: two upstreams are called %q", u.Name))
		}
		names[u.Name] = true
		errs = append(errs, u.check())
	}
	errs = append(errs, c.checkFallbacks()...)
	errs = append(errs, c.checkKeys()...)
	errs = append(errs, c.checkTokens()...)
	errs = append(errs, c.checkAliases()...)
	return errors.Join(errs...)
}

func (u *Upstream) check() error {
	switch {
	case u.Name == ownPaths:
		return fmt.Errorf("gateway: an upstream cannot be named %q, with which paths of the gateway itself begin: give it another name", ownPaths)
	case u.Name == "" || strings.Trim(u.Name, nameChars) != "":
		return fmt.Errorf("gateway: the upstream's name %q is not made of letters, digits, - and _", u.Name)
	case u.Profile == nil:
		return fmt.Errorf("gateway: upstream %q has no profile", u.Name)
	case u.URL == nil || u.URL.Host == "" || u.URL.Scheme != "http" && u.URL.Scheme != "https":
		return fmt.Errorf("gateway: upstream %q needs the http or https URL of its API", u.Name)
	case u.URL.User != nil || u.URL.RawQuery != "" || u.URL.Fragment != "":
		return fmt.Errorf("gateway: the URL of upstream %q must be without user, query and fragment", u.Name)
	case len(u.Models) == 0:
		return fmt.Errorf("gateway: upstream %q has no models: name at least one, such as *, with the policy that counts it", u.Name)
	case u.Retries < 0 || u.Retries > maxRetries:
		return fmt.Errorf("gateway: upstream %q: retries %d is not between 0 and %d", u.Name, u.Retries, maxRetries)
	}
	for _, pattern := range u.Others {
		if err := u.Profile.CheckOther(pattern); err != nil {
			return fmt.Errorf("gateway: upstream %q: others: %w", u.Name, err)
		}
	}
	if err := u.Stored.check(u); err != nil {
		return err
	}
	for i := range u.Models {
		m := &u.Models[i]
		if m.Name == "" || m.Policy == "" {
			return fmt.Errorf("gateway: upstream %q: model %d needs a name and a policy", u.Name, i+1)
		}
	}
	return nil
}

// checkFallbacks returns the mistakes of what models fall back to.
func (c *Config) checkFallbacks() (errs []error) {
	for i := range c.Upstreams {
		u := &c.Upstreams[i]
		for k := range u.Models {
			for _, f := range u.Models[k].Fallbacks {
				name, model := c.fallback(u.Name, f)
				switch to := c.upstream(name); {
				case c.alias(f) != nil || c.alias(model) != nil:
					errs = append(errs,
						fmt.Errorf("gateway: upstream %q: model %q falls back to %q, which is an alias: name the model",
							u.Name, u.Models[k].Name, f))
				case model == "" || to.model(model) == nil:
					errs = append(errs,
						fmt.Errorf("gateway: upstream %q: model %q falls back to %q, which no model of upstream %q fits: add one, so that it is counted",
							u.Name, u.Models[k].Name, f, name))
				case u.Profile != nil && to.Profile != nil && to.Profile.Name != u.Profile.Name:
					errs = append(errs,
						fmt.Errorf("gateway: upstream %q: model %q falls back to %q, but upstream %q has the profile %q and not %q: calls are not translated",
							u.Name, u.Models[k].Name, f, name, to.Profile.Name, u.Profile.Name))
				}
			}
		}
	}
	return errs
}

// fallback returns the upstream and the model that a fallback of an upstream means.
func (c *Config) fallback(upstream, name string) (to, model string) {
	if to, model, ok := strings.Cut(name, "/"); ok && c.upstream(to) != nil {
		return to, model
	}
	return upstream, name
}

// upstream returns the upstream of this name, or nil.
func (c *Config) upstream(name string) *Upstream {
	for i := range c.Upstreams {
		if c.Upstreams[i].Name == name {
			return &c.Upstreams[i]
		}
	}
	return nil
}

// model returns how calls of a model are counted, or nil: see [llm.Profile.Entry].
func (u *Upstream) model(name string) *Model {
	profile := u.Profile
	if profile == nil {
		profile = &llm.Profile{} // it is reported
	}
	at := profile.Entry(name, len(u.Models), func(i int) string { return u.Models[i].Name })
	if at < 0 {
		return nil
	}
	return &u.Models[at]
}

const (
	ownPaths   = "v1" // the first segment of [api.PathMe]
	nameChars  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	maxRetries = 10
)

// may reports whether a key may use a model of an upstream.
func (k *Key) may(upstream, model string) bool {
	if len(k.Models) == 0 {
		return true
	}
	for _, m := range k.Models {
		if fits(m, upstream+"/"+model) {
			return true
		}
	}
	return false
}
