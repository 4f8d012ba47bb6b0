package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/drawgate/drawgate/internal/pattern"
)

// minSecret is the minimum length of a secret in bytes, because shorter ones can be guessed.
// maxSecret bounds the file of a secret.
const (
	minSecret = 16
	maxSecret = 4096
)

// Secret names the environment variable or the file that holds a secret. [Resolve] looks it up; it
// is never shown.
type Secret struct {
	Env  string // the variable
	File string // the file; white space around the secret is not a part of it

	value string
}

// Reveal returns the secret, or "" if there is none or it was not looked up.
func (s Secret) Reveal() string { return s.value }

// String says where the secret is.
func (s Secret) String() string {
	switch {
	case s.Env != "":
		return "environment: " + s.Env
	case s.File != "":
		return "file: " + s.File
	}
	return ""
}

// kind returns how the secret is named: "env" or "file".
func (s Secret) kind() string {
	if s.File != "" {
		return "file"
	}
	return "env"
}

// GoString says where the secret is, for %#v.
func (s Secret) GoString() string { return fmt.Sprintf("config.Secret{%s}", s) }

// LogValue says where the secret is.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// lookUp finds the secret, which must be long enough. Its error says where the secret should be,
// but shows nothing of it.
func (s *Secret) lookUp(env *environment, read *readFiles) error {
	return s.find(env, read, func(value string) error {
		switch {
		case len(value) < minSecret:
			return fmt.Errorf("the secret in %s has fewer than %d bytes: generate a random one", s.name(), minSecret)
		case strings.ContainsAny(value, "\r\n"):
			return fmt.Errorf("the secret in %s has more than one line", s.name())
		}
		return nil
	})
}

// lookUpLink is lookUp for a URL, which may be short.
func (s *Secret) lookUpLink(env *environment, read *readFiles) error {
	return s.find(env, read, func(value string) error {
		if !isLink(value) {
			return fmt.Errorf("the value of %s is not an http or https URL", s.name())
		}
		return nil
	})
}

// find reads the secret, and checks it with the given func.
func (s *Secret) find(env *environment, read *readFiles, check func(value string) error) error {
	var value string
	switch {
	case s.Env != "":
		if value = env.get(s.Env); value == "" {
			return fmt.Errorf("the environment variable %s is not set", s.Env)
		}
	case s.File != "":
		data, err := read.file(s.File, maxSecret)
		if err != nil {
			return withoutPath(err, s.File)
		}
		if value = strings.TrimSpace(string(data)); value == "" {
			return fmt.Errorf("%s is empty", s.File)
		}
	default:
		return nil
	}
	if len(value) > maxSecret {
		return fmt.Errorf("the content of %s has more than %d bytes", s.name(), maxSecret)
	}
	if err := check(value); err != nil {
		return err
	}
	s.value = value
	return nil
}

// name returns the name of the variable or of the file.
func (s *Secret) name() string { return cmp.Or(s.Env, s.File) }

// withoutPath returns why a file could not be read. The path appears only once.
func withoutPath(err error, path string) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s cannot be read: %w", path, e.Err)
	}
	return err
}

// SecretVariables returns the names of the environment variables that hold secrets of a
// configuration: access tokens, and those that its files name. c may be nil.
func SecretVariables(c *Config) []string {
	names := []string{envTakeToken, envReadToken, envAdminToken}
	if c == nil {
		return names
	}
	named := []Secret{c.Telemetry.Salt, c.Telemetry.Webhook.Address, c.Telemetry.Webhook.Secret}
	for i := range c.Server.Tokens {
		named = append(named, c.Server.Tokens[i].Secret)
	}
	for i := range c.Gateway.Upstreams {
		named = append(named, c.Gateway.Upstreams[i].APIKey)
	}
	for i := range c.Gateway.Keys {
		for _, s := range c.Gateway.Keys[i].secrets() {
			named = append(named, s.Secret)
		}
	}
	for _, s := range named {
		if s.Env != "" && !slices.Contains(names, s.Env) {
			names = append(names, s.Env)
		}
	}
	return names
}

// secretName matches the usual names of secrets. The value of an unknown key with such a name may
// be a secret.
var secretName = pattern.New(`(?i)secret|token|passw|credential|bearer|api.?key`)

var variableNames = pattern.New(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// settings returns the keys that name a secret, and last the key that must not contain one. what is
// the secret, for the reference; only the first key has what follows its first sentence.
func (s *Secret) settings(word, usual, what string) []setting {
	brief, _, _ := strings.Cut(what, ". ")
	return []setting{
		{word + "_env", asVariable.to(&s.Env), usual, "the environment variable that holds " + what},
		{word + "_file", asSecretFile.to(&s.File), usual, "the file that holds " + brief},
		{key: word, value: value{
			read: func(d *decoder, e entry) {
				d.hideValue(e.value)
				d.problem(e.at, fmt.Sprintf("put it in an environment variable or a file, "+
					"and name that with %s_env or %[1]s_file", word), "do not put a secret in this file")
			},
			node: func() node { return node{} },
		}},
	}
}

func (d *decoder) variableName(e entry) string {
	text, ok := d.text(e)
	if ok && (!variableNames().MatchString(text) || isSecret(text)) {
		d.hideValue(e.value) // the value may be the secret itself
		d.problem(spanOf(e.value), "such as DRAWGATE_TOKEN", "%s is not the name of an environment variable", e.key)
	}
	return text
}

// secretFile reads the path of a file that holds a secret.
func (d *decoder) secretFile(e entry) string {
	text, ok := d.text(e)
	if ok && isSecret(text) {
		d.hideValue(e.value)
		d.problem(spanOf(e.value), "such as /run/secrets/alice", "%s is the path of a file, not the secret itself",
			e.key)
	}
	return text
}

// hideValue keeps a value out of all messages about the file.
func (d *decoder) hideValue(n ast.Node) {
	at := spanOf(n)
	if _, ok := n.(*ast.StringNode); ok {
		d.hide = append(d.hide, at)
		return
	}
	// A value of several lines: nothing of it is shown. It ends where the indentation ends.
	d.hide = append(d.hide, span{Line: at.Line, Column: at.Column, Width: MaxSize})
	if at.Line > len(d.lines) {
		return
	}
	outer := indent(d.lines[at.Line-1])
	for i := at.Line; i < len(d.lines) && (indent(d.lines[i]) > outer || strings.TrimSpace(d.lines[i]) == ""); i++ {
		d.hide = append(d.hide, span{Line: i + 1, Column: 1, Width: MaxSize})
	}
}

// oneSecret makes sure that a secret is given exactly once. more means that it is given in another
// way, too.
func (d *decoder) oneSecret(at span, what, word string, more bool, s Secret, wrong bool) {
	given := count(s.Env, s.File)
	if more {
		given++
	}
	if given != 1 && !wrong {
		d.missing(at, fmt.Sprintf("name it with %s_env or %[1]s_file", word), "%s needs one secret, not %d", what,
			given)
	}
}

// count returns how many of the texts are not empty.
func count(list ...string) (n int) {
	for _, s := range list {
		if s != "" {
			n++
		}
	}
	return n
}
