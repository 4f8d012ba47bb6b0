package virtualkey

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/store"
)

// Bounds of a key.
const (
	maxName    = 128      // bytes
	maxText    = 256      // bytes of a team, a pattern and the like
	maxList    = 100      // patterns, or networks
	maxSecrets = 10       // that are valid at a time
	maxKey     = 64 << 10 // bytes of a key as it is stored
)

// Key is a virtual key of the store. It is not changed any more once it was given to anybody.
type Key struct {
	api.KeySettings

	Name    string    `json:"name"`
	Version int64     `json:"version"`
	Secrets []Secret  `json:"secrets"`
	Created time.Time `json:"created"`
	Changed time.Time `json:"changed"`
	By      string    `json:"by,omitempty"`

	networks []netip.Prefix
}

// Secret is a secret of a key, of which only the SHA-256 is known.
type Secret struct {
	Sum   Sum        `json:"sha256"`
	Made  time.Time  `json:"made"`
	Until *time.Time `json:"until,omitempty"` // it is valid before this instant
}

// Sum is the SHA-256 of a secret. It is written in hexadecimal digits.
type Sum [sha256.Size]byte

// MarshalText implements [encoding.TextMarshaler].
func (s Sum) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, s[:]), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (s *Sum) UnmarshalText(text []byte) error {
	b, err := hex.DecodeString(string(text))
	if err != nil || len(b) != len(s) {
		return errors.New("virtualkey: a SHA-256 has 64 hexadecimal digits")
	}
	copy(s[:], b)
	return nil
}

// Networks returns the networks in which the key's callers must be; none means all.
func (k *Key) Networks() []netip.Prefix { return k.networks }

// Show returns what administrators see of a key.
func (k *Key) Show() api.Key {
	out := api.Key{
		KeySettings: k.KeySettings, Name: k.Name, Version: k.Version, Secrets: []api.KeySecret{},
		Created: k.Created, Changed: k.Changed, By: k.By,
	}
	for i := range k.Secrets {
		out.Secrets = append(out.Secrets, api.KeySecret{Made: k.Secrets[i].Made, Until: k.Secrets[i].Until})
	}
	return out
}

// copied returns a copy that can be changed.
func (k *Key) copied() *Key {
	c := *k
	c.Secrets = slices.Clone(k.Secrets)
	return &c
}

// readKey reads a key as it is stored. Whatever is not understood is an error: it may forbid
// something.
func readKey(name string, value []byte) (*Key, error) {
	var k Key
	d := json.NewDecoder(bytes.NewReader(value))
	d.DisallowUnknownFields()
	if err := d.Decode(&k); err != nil {
		return nil, fmt.Errorf("virtualkey: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) || k.Name != name || len(k.Secrets) == 0 {
		return nil, errors.New("virtualkey: it is another key, or has no secret")
	}
	var err error
	k.networks, err = check(name, &k.KeySettings)
	return &k, err
}

// encode writes a value as JSON.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("virtualkey: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// check returns what is wrong with the name and the settings of a key, and its networks.
func check(name string, s *api.KeySettings) ([]netip.Prefix, error) {
	switch {
	case name == "" || len(name) > maxName:
		return nil, fmt.Errorf("the name of a key has 1 to %d bytes", maxName)
	case strings.Contains(name, "#"):
		return nil, errors.New("the name of a key has no #: those of signed tokens do")
	case hidden(name) || strings.ContainsAny(name, `"\/`) || name == "." || name == "..":
		return nil, errors.New("the name of a key has no quotes, slashes or characters that cannot be seen")
	case s.Priority < 0 || s.Priority > store.MaxPriority:
		return nil, fmt.Errorf("priority %d is not between 0 and %d", s.Priority, store.MaxPriority)
	case s.Expires != nil && (s.Expires.Year() < 2000 || s.Expires.Year() > 9999):
		return nil, errors.New("expires is not an instant in the years 2000 to 9999")
	}
	for field, text := range map[string]string{"team": s.Team, "user": s.User, "class": s.Class} {
		if len(text) > maxText || hidden(text) {
			return nil, fmt.Errorf("%s has more than %d bytes, or characters that cannot be seen", field, maxText)
		}
	}
	for field, list := range map[string][]string{
		"models": s.Models, "others": s.Others, "paths": s.Paths, "addresses": s.Addresses,
	} {
		if len(list) > maxList {
			return nil, fmt.Errorf("%s has more than %d entries", field, maxList)
		}
		for _, text := range list {
			switch {
			case text == "" || len(text) > maxText || hidden(text):
				return nil, fmt.Errorf("an entry of %s is empty, has more than %d bytes, or characters that cannot be seen",
					field, maxText)
			case strings.Contains(strings.TrimSuffix(text, "*"), "*"):
				return nil, fmt.Errorf("an entry of %s has a * that is not at its end", field)
			}
		}
	}
	if err := checkLimits(s.Limits); err != nil {
		return nil, err
	}
	return networksOf(s.Addresses)
}

// checkLimits returns what is wrong with amounts, whatever limits there are.
func checkLimits(limits map[string]map[string]int64) error {
	n := 0
	for policy, amounts := range limits {
		if len(amounts) == 0 {
			return fmt.Errorf("limits of policy %.80q is empty: leave the policy out", policy)
		}
		for limit, amount := range amounts {
			n++
			switch {
			case len(policy) > maxText || len(limit) > maxText || hidden(policy) || hidden(limit):
				return errors.New("limits has a name that is too long, or has characters that cannot be seen")
			case amount < 1 || amount > store.MaxAmount:
				return fmt.Errorf("limits: amount %d of %.80s/%.80s is not between 1 and %d", amount, policy, limit,
					int64(store.MaxAmount))
			}
		}
	}
	if n > maxList {
		return fmt.Errorf("limits has more than %d amounts", maxList)
	}
	return nil
}

// hidden reports whether a text has characters that cannot be seen.
func hidden(text string) bool {
	return !utf8.ValidString(text) || strings.TrimSpace(text) != text || strings.ContainsFunc(text, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) && r != ' '
	})
}

// networksOf reads networks, and single addresses.
func networksOf(list []string) (networks []netip.Prefix, err error) {
	for _, text := range list {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			a = a.Unmap()
			networks = append(networks, netip.PrefixFrom(a, a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("addresses: %.80q is neither an address nor a network", text)
		}
		networks = append(networks, p.Masked())
	}
	return networks, nil
}

// fieldsOf returns the settings as texts, by name. Settings that differ have different texts.
func fieldsOf(s *api.KeySettings) [][2]string {
	expires := ""
	if s.Expires != nil {
		expires = s.Expires.UTC().Format(time.RFC3339Nano)
	}
	list := func(l []string) string {
		l = slices.Clone(l)
		for i := range l {
			if strings.ContainsAny(l[i], `,"`) { // otherwise it could be two
				l[i] = strconv.Quote(l[i])
			}
		}
		return strings.Join(l, ", ")
	}
	return [][2]string{
		{"team", s.Team},
		{"user", s.User},
		{"class", s.Class},
		{"priority", strconv.Itoa(s.Priority)},
		{"models", list(s.Models)},
		{"others", list(s.Others)},
		{"paths", list(s.Paths)},
		{"addresses", list(s.Addresses)},
		{"expires", expires},
		{"disabled", strconv.FormatBool(s.Disabled)},
		{"limits", list(s.LimitTexts())},
	}
}

// mostShown is how many bytes of a setting a history has.
const mostShown = 60

// shown cuts a text for a history.
func shown(text string) string {
	if len(text) <= mostShown {
		return text
	}
	return strings.ToValidUTF8(text[:mostShown-3], "") + "…"
}

// differences returns which settings differ.
func differences(before, after *api.KeySettings) (list []api.KeyField) {
	old, now := fieldsOf(before), fieldsOf(after)
	for i := range old {
		if old[i] == now[i] {
			continue
		}
		f := api.KeyField{Field: old[i][0], Before: shown(old[i][1]), After: shown(now[i][1])}
		if f.Before == f.After { // they differ behind what is shown
			at := sameStart(old[i][1], now[i][1])
			f.Before, f.After = shown("…"+old[i][1][at:]), shown("…"+now[i][1][at:])
		}
		list = append(list, f)
	}
	return list
}

// sameStart returns how many bytes of whole characters two texts begin with alike.
func sameStart(a, b string) int {
	for i, r := range a {
		if n := i + utf8.RuneLen(r); n > min(len(a), len(b)) || a[i:n] != b[i:n] {
			return i
		}
	}
	return len(a)
}
