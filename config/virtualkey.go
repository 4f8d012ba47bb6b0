package config

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/yamltext"
)

// VirtualKey is what a caller of the gateway shows. Only the SHA-256 of its secret is known.
type VirtualKey struct {
	Name              string
	Team, User, Class string
	Priority          int
	Models            []string // "upstream/model", with * at the end, or an alias; none means everything
	Others            []string // "upstream/path", with * at the end, of the upstreams' Others; none means all
	Paths             []string // "upstream/path", with * at the end, of all its calls; none means all

	Addresses []netip.Prefix // networks in which its callers must be; none means all
	Expires   time.Time      // it is valid before this instant; zero: it has no end
	Disabled  bool           // all its calls are refused

	Sum     [sha256.Size]byte // as in [Token]
	Secret  Secret            // where the secret is; empty if the file has its SHA-256
	Secrets []KeySecret       // several secrets, in place of Sum and Secret
}

// KeySecret is one of several secrets of a [VirtualKey].
type KeySecret struct {
	Sum    [sha256.Size]byte // as in [Token]
	Secret Secret            // where the secret is; empty if the file has its SHA-256
	Until  time.Time         // it is valid before this instant; zero: it has no end
}

func (d *decoder) virtualKeys(e entry) []VirtualKey {
	first := map[string]int{}
	return manyBy(virtualKeySection, maxKeys, func(d *decoder, e entry, i int) (k VirtualKey) {
		s := *virtualKeySection
		s.noted = keySetting(i)
		d.origin(s.noted, e.at)
		s.read(d, e, &k)
		if line := first[k.Name]; line != 0 && k.Name != "" {
			d.problem(e.at, fmt.Sprintf("the first one is on line %d", line),
				"key name %s is used twice", shorten(k.Name))
		}
		first[k.Name] = e.at.Line
		return k
	}).read(d, e)
}

// keySetting is the name of a key's settings.
func keySetting(i int) string { return "gateway.keys[" + strconv.Itoa(i) + "]" }

var virtualKeySection = &section[VirtualKey]{
	name: "virtualKey", what: "a key", settings: (*VirtualKey).settings,
	more:  schema{"oneOf": need("secret_env", "secret_file", "sha256", "secrets")},
	lacks: "the key has no name", hint: "rules, and the log of calls that fail, call the key by it",
	check: func(d *decoder, e entry, k *VirtualKey, seen map[string]bool, wrong bool) {
		one := seen["sha256"] || k.Secret != (Secret{})
		switch {
		case seen["secrets"] && one:
			d.problem(spanOf(e.value), "move it into secrets, such as {env: ALICE_KEY}",
				"a key has one secret, or a list of secrets, but not both")
		case !seen["secrets"]:
			d.oneSecret(spanOf(e.value), "a key", "secret", seen["sha256"], k.Secret, wrong)
		}
	},
}

var keySecretSection = &section[KeySecret]{
	name: "keySecret", what: "a secret", settings: (*KeySecret).settings,
	more: schema{"oneOf": need("env", "file", "sha256")},
	check: func(d *decoder, e entry, s *KeySecret, seen map[string]bool, wrong bool) {
		given := count(s.Secret.Env, s.Secret.File)
		if seen["sha256"] {
			given++
		}
		if given != 1 && !wrong {
			d.missing(spanOf(e.value), "name it with env or file, or give its sha256",
				"an entry of secrets is one secret, not %d", given)
		}
	},
}

func (s *KeySecret) settings() []setting {
	return []setting{
		{"env", asVariable.to(&s.Secret.Env), oneOfThree, "the environment variable that holds the secret, of at " +
			"least 16 bytes"},
		{"file", asSecretFile.to(&s.Secret.File), oneOfThree, "the file that holds the secret"},
		{"sha256", digest(&s.Sum, &s.Secret), oneOfThree, "the SHA-256 of the secret, as `drawgate key` prints it"},
		{"until", asInstant.to(&s.Until), "no end", "it is valid before this instant of RFC 3339, such as " +
			"`2027-01-31T00:00:00Z`"},
	}
}

// keySecrets reads the secrets of a key. Whatever is not understood may be a secret, so it is not
// shown.
func (d *decoder) keySecrets(e entry) (list []KeySecret) {
	const hint = "such as secrets: [{env: OLD_KEY, until: 2027-01-31T00:00:00Z}, {file: new.key}]"
	items, ok := e.value.(*ast.SequenceNode)
	if !ok {
		d.hideValue(e.value)
		d.problem(spanOf(e.value), hint, "secrets must be a list")
		return nil
	}
	nodes, _ := d.list(entry{e.key, e.at, items}, maxKeySecrets)
	for _, n := range nodes {
		pairs, ok := yamltext.Pairs(n, true)
		if !ok {
			d.hideValue(n)
			d.problem(spanOf(n), hint, "an entry of secrets must be a mapping that says where the secret is")
			continue
		}
		var s KeySecret
		known := s.settings()
		for _, p := range pairs {
			if !slices.ContainsFunc(known, func(k setting) bool { return k.key == p.Key }) {
				d.hideValue(p.Value)
			}
		}
		keySecretSection.read(d, entry{e.key, spanOf(n), n}, &s)
		list = append(list, s)
	}
	return list
}

const maxKeySecrets = 100

var asPriority = number[int](0, drawgate.MaxPriority)

func (k *VirtualKey) settings() []setting {
	patterns := oneOrMore(asPattern, maxModels)
	secrets := readBy(many(keySecretSection, maxKeySecrets), (*decoder).keySecrets)
	sum := digest(&k.Sum, &k.Secret)
	whole := sum.node
	sum.node = func() (n node) {
		if len(k.Secrets) == 0 {
			n = whole()
		}
		return n
	}
	return append([]setting{
		{"name", asName.to(&k.Name), required, "what rules see: `attr(\"key\")`. The log names it where a call " +
			"fails. Metrics and warnings have [its hash](gateway.md#what-is-used), as of every key of a bucket"},
		{"team", asShort.to(&k.Team), "empty", "what rules see: `attr(\"team\")`"},
		{"user", asShort.to(&k.User), "empty", "what rules see: `user`"},
		{"class", asShort.to(&k.Class), "empty", "what rules see: `class`"},
		{"priority", asPriority.to(&k.Priority), "0", "of its calls, and the highest that they may have: the header " +
			"`Drawgate-Priority` can only lower it"},
		{"models", patterns.to(&k.Models), "everything", "what it may use: `UPSTREAM/MODEL`, with `*` at the end, or " +
			"the name of an [alias](gateway.md#aliases). Calls that may choose [another model](gateway.md#callers) are refused"},
		{"others", patterns.to(&k.Others), "all", "which of the upstreams' `others` it may use: `UPSTREAM/PATH`, " +
			"with `*` at the end"},
		{"paths", patterns.to(&k.Paths), "all", "which calls it may make, counted or not: `UPSTREAM/PATH`, with `*` " +
			"at the end. The path is the caller's, as it is written"},
		{"addresses", asNetworks.to(&k.Addresses), "all", "networks, or single addresses, from which it may be used. " +
			"Behind a proxy the address is the one that [`server.proxies`](#server) says"},
		{"expires", asInstant.to(&k.Expires), "never", "it is valid before this instant of RFC 3339, whatever its " +
			"secrets say"},
		{"disabled", asFlag.to(&k.Disabled), no, "`true` refuses all its calls"},
		{"sha256", sum, oneOfFour, "the SHA-256 of the key, as [`drawgate " +
			"key`](gateway.md#keys) prints it"},
		{"secrets", secrets.to(&k.Secrets), oneOfFour, "several secrets, of which one can [replace " +
			"another](gateway.md#keys)"},
	}, k.Secret.settings("secret", oneOfFour, "the key, of at least 16 bytes")...)
}

// lookUp finds the secret, and keeps its SHA-256 alone.
func (k *VirtualKey) lookUp(env *environment, read *readFiles) error {
	return lookUpSum(&k.Sum, &k.Secret, env, read)
}

// lookUpSecrets is lookUp for the list of secrets.
func (k *VirtualKey) lookUpSecrets(env *environment, read *readFiles) error {
	for i := range k.Secrets {
		if err := lookUpSum(&k.Secrets[i].Sum, &k.Secrets[i].Secret, env, read); err != nil {
			return err
		}
	}
	return nil
}

func lookUpSum(sum *[sha256.Size]byte, s *Secret, env *environment, read *readFiles) error {
	if *s == (Secret{}) {
		return nil
	}
	if err := s.lookUp(env, read); err != nil {
		return err
	}
	*sum = sha256.Sum256([]byte(s.value))
	s.value = ""
	return nil
}

// secrets returns all secrets of a key.
func (k *VirtualKey) secrets() []KeySecret {
	if len(k.Secrets) == 0 {
		return []KeySecret{{Sum: k.Sum, Secret: k.Secret}}
	}
	return k.Secrets
}

// sameKey returns an error if two keys have the same secret, or one has it twice, and the second of
// them.
func sameKey(list []VirtualKey) (second int, err error) {
	first := map[[sha256.Size]byte]int{}
	for i := range list {
		for _, s := range list[i].secrets() {
			other, same := first[s.Sum]
			switch {
			case same && other == i:
				return i, fmt.Errorf("two secrets of key %s are the same", shorten(list[i].Name))
			case same:
				return i, fmt.Errorf("keys %s and %s are the same", shorten(list[other].Name), shorten(list[i].Name))
			}
			first[s.Sum] = i
		}
	}
	return 0, nil
}

// end returns the instant from which on no call of a key passes, zero if there is none, and the
// setting that says so.
func (k *VirtualKey) end() (end time.Time, setting string) {
	end, setting = k.Expires, "expires"
	var last time.Time
	for _, s := range k.secrets() {
		if s.Until.IsZero() {
			return end, setting
		}
		if s.Until.After(last) {
			last = s.Until
		}
	}
	if end.IsZero() || last.Before(end) {
		return last, "secrets"
	}
	return end, setting
}

// warnBefore is how long before the end of a key warnings say so. A gateway that runs by then says
// it in its log.
const warnBefore = 7 * 24 * time.Hour

// endHint says what to do before the last secret of a key ends.
const endHint = "add a new one: drawgate key new makes it"

// warnKeys warns of keys that have ended, or will soon.
func (c *Config) warnKeys() {
	now := time.Now()
	for i := range c.Gateway.Keys {
		k := &c.Gateway.Keys[i]
		end, setting := k.end()
		if end.IsZero() || k.Disabled || end.Sub(now) > warnBefore {
			continue
		}
		var what, hint string
		switch over := !now.Before(end); {
		case setting == "expires" && over:
			what, hint = "key %s expired at %s: all its calls are refused", "leave it out, or give it a later end"
		case setting == "expires":
			what, hint = "key %s expires at %s", "give it a later end, if it is still needed"
		case over:
			what, hint = "the last secret of key %s was valid until %s: all its calls are refused", endHint
		default:
			what, hint = "the last secret of key %s is valid until %s", endHint
		}
		c.warnOf(keySetting(i)+"."+setting, hint, what, shorten(k.Name), end.Format("2006-01-02 15:04:05Z"))
	}
}
