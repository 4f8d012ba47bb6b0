package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/pattern"
)

// The defaults of [APIKeys].
const (
	DefaultKeyHeader = "X-API-Key"
	DefaultClass     = "default"
)

const maxAPIKeys = 100_000

// APIKeys maps API keys to classes, which rules can match. The keys are not stored, only their
// SHA-256.
type APIKeys struct {
	Header  string // that carries the key; "" means [DefaultKeyHeader]
	Default string // the class of requests without a key, or with one that is not known; "" means [DefaultClass]

	// Classes are the classes of keys by their SHA-256. Nil means that API keys are ignored.
	Classes map[[sha256.Size]byte]string
}

// Class returns the class of a request by its headers, or "" if API keys are ignored. If a request
// has several keys, the first one counts.
func (k *APIKeys) Class(h http.Header) string {
	if k.Classes == nil {
		return ""
	}
	return k.classOfKey(h.Get(k.header()))
}

// ClassOf is [APIKeys.Class] for Envoy's descriptors: the key is in the entry with the name of the
// header, in upper or lower case.
func (k *APIKeys) ClassOf(entries map[string]string) string {
	if k.Classes == nil {
		return ""
	}
	for name, value := range entries {
		if strings.EqualFold(name, k.header()) {
			return k.classOfKey(value)
		}
	}
	return k.class()
}

func (k *APIKeys) header() string { return cmp.Or(k.Header, DefaultKeyHeader) }

func (k *APIKeys) class() string { return cmp.Or(k.Default, DefaultClass) }

func (k *APIKeys) classOfKey(key string) string {
	if key == "" {
		return k.class()
	}
	return cmp.Or(k.Classes[sha256.Sum256([]byte(key))], k.class())
}

// names returns the names of the classes, sorted.
func (k *APIKeys) names() []string {
	return slices.Compact(slices.Sorted(maps.Values(k.Classes)))
}

// hashes returns the keys of a class as a file has them, sorted.
func (k *APIKeys) hashes(class string) (list []string) {
	for sum, c := range k.Classes {
		if c == class {
			list = append(list, hashPrefix+hex.EncodeToString(sum[:]))
		}
	}
	slices.Sort(list)
	return list
}

const hashPrefix = "sha256:"

// parseHash reads sha256: and 64 hexadecimal digits.
func parseHash(text string) (sum [sha256.Size]byte, ok bool) {
	digits, found := strings.CutPrefix(text, hashPrefix)
	data, err := hex.DecodeString(digits)
	if !found || err != nil || len(data) != sha256.Size {
		return sum, false
	}
	return [sha256.Size]byte(data), true
}

var keySection = &section[APIKeys]{
	name: "apiKeys", what: "api_keys", noted: "api_keys", settings: (*APIKeys).settings,
	check: func(d *decoder, e entry, _ *APIKeys, seen map[string]bool, _ bool) {
		d.origin("api_keys", e.at)
		if !seen["classes"] {
			d.missing(e.at, `such as classes: {privileged: ["sha256:…"]}`, "api_keys has no classes")
		}
	},
}

func (k *APIKeys) settings() []setting {
	hash := schema{"type": "string", "pattern": "^sha256:[0-9a-fA-F]{64}$"}
	return []setting{
		{"header", asHeader.to(&k.Header), "`" + DefaultKeyHeader + "`", "the header that carries the key; in an " +
			"Envoy descriptor, the entry of the same name in lower or upper case (`x-api-key`)"},
		{"default", asShort.to(&k.Default), "`" + DefaultClass + "`", "the class of a request without a key, or with " +
			"an unknown one"},
		{
			"classes",
			value{
				read: func(d *decoder, e entry) { d.classes(e, k) },
				node: func() (n node) {
					for _, class := range k.names() {
						n.pairs = append(n.pairs, pair{quote(class), texts(k.hashes(class))})
					}
					return n
				},
				schema: mapOf(listOf(hash, maxAPIKeys)),
			},
			required,
			"for each name of a class the hashes of its keys, each `sha256:` and 64 hexadecimal digits; at most " +
				"100,000 in a class. The keys themselves must not be in the file",
		},
	}
}

var headers = pattern.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$")

// header reads the name of a header.
func (d *decoder) header(e entry) string {
	text, ok := d.text(e)
	if ok && !headers().MatchString(text) {
		d.problem(spanOf(e.value), "such as X-API-Key", "%s %s is not the name of a header", e.key, shorten(text))
	}
	return textproto.CanonicalMIMEHeaderKey(text)
}

func (d *decoder) classes(e entry, k *APIKeys) {
	k.Classes = map[[sha256.Size]byte]string{}
	entries, ok := d.entries(e.value, "classes")
	if ok && len(entries) == 0 {
		d.missing(spanOf(e.value), `such as {privileged: ["sha256:…"]}`, "classes is empty")
	}
	for _, e := range entries {
		if e.key == "" || len(e.key) > maxName {
			d.problem(e.at, "", "a class needs a name of 1 to %d bytes", maxName)
		}
		keys, _ := d.list(e, maxAPIKeys)
		for _, n := range keys {
			d.keyHash(n, e.key, k)
		}
	}
}

// keyHash reads the hash of a key. Any other value may be the key itself, so it is not shown.
func (d *decoder) keyHash(n ast.Node, class string, k *APIKeys) {
	s, ok := n.(*ast.StringNode)
	if !ok {
		d.hideValue(n)
		d.problem(spanOf(n), "put it in quotes within brackets",
			"a key of class %s must be sha256: and 64 hexadecimal digits", shorten(class))
		return
	}
	sum, ok := parseHash(s.Value)
	if !ok {
		d.hideValue(n)
		d.problem(spanOf(n), `do not put the key itself in the file, only its SHA-256: printf %s "$KEY" | sha256sum`,
			"a key of class %s must be sha256: and 64 hexadecimal digits", shorten(class))
		return
	}
	if other, twice := k.Classes[sum]; twice {
		d.problem(spanOf(n), "", "this key is already in class %s", shorten(other))
		return
	}
	k.Classes[sum] = class
}
