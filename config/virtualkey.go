package config

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/drawgate/drawgate"
)

// VirtualKey is what a caller of the gateway shows. Only the SHA-256 of its secret is known.
type VirtualKey struct {
	Name              string
	Team, User, Class string
	Priority          int
	Models            []string // "upstream/model", with * at the end, or an alias; none means everything
	Others            []string // "upstream/path", with * at the end, of the upstreams' Others; none means all

	Sum    [sha256.Size]byte // as in [Token]
	Secret Secret            // where the secret is; empty if the file has its SHA-256
}

func (d *decoder) virtualKeys(e entry) []VirtualKey {
	first := map[string]int{}
	return manyBy(virtualKeySection, maxKeys, func(d *decoder, e entry, i int) (k VirtualKey) {
		s := virtualKeySection
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

var virtualKeySection = section[VirtualKey]{
	name: "virtualKey", what: "a key", settings: (*VirtualKey).settings,
	more:  schema{"oneOf": need("secret_env", "secret_file", "sha256")},
	lacks: "the key has no name", hint: "rules, and the log of calls that fail, call the key by it",
	check: func(d *decoder, e entry, k *VirtualKey, seen map[string]bool, wrong bool) {
		d.oneSecret(spanOf(e.value), "a key", "secret", seen["sha256"], k.Secret, wrong)
	},
}

var asPriority = number[int](0, drawgate.MaxPriority)

func (k *VirtualKey) settings() []setting {
	patterns := oneOrMore(asPattern, maxModels)
	return append([]setting{
		{"name", asName.to(&k.Name), required, "what rules see: `attr(\"key\")`. The log names it where a call " +
			"fails. Metrics and warnings have [its hash](gateway.md#what-is-used), as of every key of a bucket"},
		{"team", asShort.to(&k.Team), "empty", "what rules see: `attr(\"team\")`"},
		{"user", asShort.to(&k.User), "empty", "what rules see: `user`"},
		{"class", asShort.to(&k.Class), "empty", "what rules see: `class`"},
		{"priority", asPriority.to(&k.Priority), "0", "of its calls. The header `Drawgate-Priority` can lower it"},
		{"models", patterns.to(&k.Models), "everything", "what it may use: `UPSTREAM/MODEL`, with `*` at the end, or " +
			"the name of an [alias](gateway.md#aliases). Calls that may choose [another model](gateway.md#callers) are refused"},
		{"others", patterns.to(&k.Others), "all", "which of the upstreams' `others` it may use: `UPSTREAM/PATH`, " +
			"with `*` at the end"},
		{"sha256", digest(&k.Sum, &k.Secret), oneOfThree, "the SHA-256 of the key: `printf %s \"$KEY\" | sha256sum`"},
	}, k.Secret.settings("secret", oneOfThree, "the key, of at least 16 bytes")...)
}

// lookUp finds the secret, and keeps its SHA-256 alone.
func (k *VirtualKey) lookUp(env *environment, read *readFiles) error {
	if k.Secret == (Secret{}) {
		return nil
	}
	if err := k.Secret.lookUp(env, read); err != nil {
		return err
	}
	k.Sum = sha256.Sum256([]byte(k.Secret.value))
	k.Secret.value = ""
	return nil
}

// sameKey returns an error if two keys have the same secret, and the second of them.
func sameKey(list []VirtualKey) (second int, err error) {
	first := map[[sha256.Size]byte]string{}
	for i := range list {
		if other, same := first[list[i].Sum]; same {
			return i, fmt.Errorf("keys %s and %s are the same", shorten(other), shorten(list[i].Name))
		}
		first[list[i].Sum] = list[i].Name
	}
	return 0, nil
}
