package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate"
)

// VirtualKey is what a caller of the gateway shows. Only the SHA-256 of its secret is known.
type VirtualKey struct {
	Name              string
	Team, User, Class string
	Priority          int
	Models            []string // "upstream/model", with * at the end; none means everything
	Others            []string // "upstream/path", with * at the end, of the upstreams' Others; none means all

	Sum    [sha256.Size]byte // as in [Token]
	Secret Secret            // where the secret is; empty if the file has its SHA-256
}

func (d *decoder) virtualKeys(e entry) (list []VirtualKey) {
	items, _ := d.list(e, maxKeys)
	first := map[string]int{}
	for i, n := range items {
		k := d.virtualKey(n, keySetting(i))
		if line := first[k.Name]; line != 0 && k.Name != "" {
			d.problem(spanOf(n), fmt.Sprintf("the first one is on line %d", line), "key name %s is used twice", shorten(k.Name))
		}
		first[k.Name] = spanOf(n).Line
		list = append(list, k)
	}
	return list
}

// keySetting is the name of a key's settings.
func keySetting(i int) string { return "gateway.keys[" + strconv.Itoa(i) + "]" }

func (d *decoder) virtualKey(n ast.Node, setting string) (k VirtualKey) {
	d.origin(setting, spanOf(n))
	before := len(d.problems)
	hash := ""
	seen := d.settings(n, "a key", setting, k.settings(d, &hash))
	wrong := len(d.problems) > before
	d.oneSecret(spanOf(n), "a key", "secret", hash, k.Secret, wrong)
	if !seen["name"] && !wrong {
		d.missing(spanOf(n), "rules, and the log of calls that fail, call the key by it", "the key has no name")
	}
	return k
}

// settings puts the SHA-256 as it is written into hash.
func (k *VirtualKey) settings(d *decoder, hash *string) []setting {
	var sum node
	if k.Secret == (Secret{}) {
		sum = textNode(hex.EncodeToString(k.Sum[:]))
	}
	return append([]setting{
		{"name", func(e entry) { k.Name = d.ruleName(e) }, textNode(k.Name)},
		{"team", func(e entry) { k.Team = d.short(e) }, textNode(k.Team)},
		{"user", func(e entry) { k.User = d.short(e) }, textNode(k.User)},
		{"class", func(e entry) { k.Class = d.short(e) }, textNode(k.Class)},
		{"priority", func(e entry) { k.Priority = int(d.integer(e, 0, drawgate.MaxPriority)) }, numberNode(k.Priority)},
		{"models", func(e entry) {
			d.texts(e, maxModels, func(e entry) {
				if text := d.pattern(e); text != "" {
					k.Models = append(k.Models, text)
				}
			})
		}, texts(k.Models)},
		{"others", func(e entry) {
			d.texts(e, maxModels, func(e entry) {
				if text := d.pattern(e); text != "" {
					k.Others = append(k.Others, text)
				}
			})
		}, texts(k.Others)},
		{"sha256", func(e entry) { *hash, k.Sum = d.digest(e) }, sum},
	}, k.Secret.settings(d, "secret")...)
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
