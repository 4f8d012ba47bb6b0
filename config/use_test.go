package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/memstore"
)

// Servers without a common salt are warned, because one key would look like several keys.
func TestServersWithoutACommonSaltAreWarned(t *testing.T) {
	t.Parallel()
	salted := Telemetry{Salt: Secret{Env: "SALT"}}
	for _, c := range []struct {
		store     string
		instances int
		telemetry Telemetry
		want      bool
	}{
		{"redis://127.0.0.1:1", 0, Telemetry{}, true},
		{"redis://127.0.0.1:1", 3, Telemetry{}, true},
		{"redis://127.0.0.1:1", 3, Telemetry{MetricsOff: true}, true}, // the log has hashes, too
		{"redis://127.0.0.1:1", 1, Telemetry{}, false},
		{"redis://127.0.0.1:1", 3, salted, false},
		{"sqlite:/var/lib/drawgate.db", 0, Telemetry{}, false},
		{"sqlite:/var/lib/drawgate.db", 2, Telemetry{}, true},
		{Memory, 0, Telemetry{}, false},
	} {
		environ := []string{"DRAWGATE_STORE=" + c.store, "SALT=a salt that nobody guesses"}
		file := "policies: {a: {limits: [{name: a, rolling: 1m, amount: 1}]}}\n"
		if c.telemetry.Salt.Env != "" {
			file += "telemetry: {salt_env: SALT}\n"
		}
		path := filepath.Join(t.TempDir(), "drawgate.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		resolved, err := Resolve(environ, Flags{Config: path})
		if err != nil {
			t.Fatal(err)
		}
		resolved.Instances, resolved.Telemetry.MetricsOff = Instances{Number: c.instances}, c.telemetry.MetricsOff
		var log strings.Builder
		r := &Runtime{Store: memstore.New(nil), opts: OpenOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		r.closers = append(r.closers, r.Store.Close)
		if err := errors.Join(r.observe(resolved), r.Close()); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(log.String(), "without a common salt"); got != c.want {
			t.Errorf("%s, %d instances, salt %q: warned %v, want %v", c.store, c.instances, c.telemetry.Salt, got,
				c.want)
		}
	}
}

// After an error nothing stays open: goroutines that were left would end this test's bubble.
func TestStartClosesEverythingAfterAnError(t *testing.T) {
	t.Parallel()
	twice := []drawgate.Policy{drawgate.PerMinute("api", 1), drawgate.PerMinute("api", 1)}
	hook := Webhook{URL: "https://example.com", Secret: Secret{value: "0123456789abcdef"}}
	for _, c := range []struct {
		name, want string
		config     *Config
	}{
		{"store", "sqlite store", &Config{Store: "sqlite:" + t.TempDir() + "/none/x.db"}},
		{"webhook", "webhook", &Config{Telemetry: Telemetry{Webhook: Webhook{URL: "no link"}}}},
		{"engine", "the same name", &Config{Policies: twice, Telemetry: Telemetry{Webhook: hook}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r, err := Start(t.Context(), c.config, nil)
				if r != nil || err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, %v, want nil and an error with %q", r, err, c.want)
				}
			})
		})
	}
}

// inForce are the fields of a configuration that a reload puts in force, or that do nothing.
var inForce = []string{
	"Off", "Policies", "Modes", "Rules", "APIKeys.Header", "APIKeys.Default", "APIKeys.Classes", "Envoy.Configs",
	"Envoy.Merge", "Envoy.Aligned",
	"Queue.MaxDepth", "Queue.RetryDelay", "Queue.MaxAttempts", "Queue.Multiplier", // of no effect yet
	"Gateway.Upstreams", "Gateway.Aliases", "Gateway.Keys", "Gateway.Tokens", // by the gateway, as are the prices
	"Gateway.Prices.Currency", "Gateway.Prices.Models",
	"Warnings", "Envoy.Policies",
}

// Every field is either reloaded or needs a restart; a new field must be added to one of the lists.
func TestEveryFieldIsReloadedOrNeedsARestart(t *testing.T) {
	t.Parallel()
	fields := 0
	eachField(reflect.TypeFor[Config](), nil, "", func(index []int, name string) {
		fields++
		var next Config
		alter(t, reflect.ValueOf(&next).Elem().FieldByIndex(index), name)
		keys, now := needsRestart(&Config{}, &next), slices.Contains(inForce, name)
		if len(keys) > 0 == now {
			t.Errorf("%s: needs a restart of %q, and in force at once is %v", name, keys, now)
		}
		for _, c := range []struct {
			what  string
			fresh *Config
			set   bool
		}{
			{"added", next.keeping(&Config{}, keys), now},
			{"removed", (&Config{}).keeping(&next, keys), !now},
		} {
			if set := !reflect.ValueOf(c.fresh).Elem().FieldByIndex(index).IsZero(); set != c.set {
				t.Errorf("%s: %s by a reload it is set: %v, want %v", name, c.what, set, c.set)
			}
		}
	})
	if fields < 50 {
		t.Errorf("looked at %d fields", fields)
	}
}

// eachField calls f with the exported fields of a struct, and with those of nested structs one by
// one.
func eachField(s reflect.Type, index []int, prefix string, f func(index []int, name string)) {
	for i := range s.NumField() {
		field, path := s.Field(i), append(slices.Clone(index), i)
		switch {
		case !field.IsExported():
		case field.Type.Kind() == reflect.Struct:
			eachField(field.Type, path, prefix+field.Name+".", f)
		default:
			f(path, prefix+field.Name)
		}
	}
}

// alter gives a field that is zero another value.
func alter(t *testing.T, v reflect.Value, name string) {
	t.Helper()
	switch v.Kind() { //nolint:exhaustive // whatever else there is fails
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.Zero(v.Type().Key()), reflect.Zero(v.Type().Elem()))
	default:
		t.Errorf("%s is a %s: teach this test to alter one", name, v.Kind())
	}
}

// A changed secret behind the same name is noticed, and needs a restart.
func TestOtherSecretsNeedARestart(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "drawgate.yaml")
	text := "policies: {api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}}\n" +
		"telemetry: {salt_env: SALT, webhook: {url: 'https://example.com', secret_env: SECRET}}\nserver: {tokens: [{role: take, token_env: TOKEN}]}\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	resolve := func(salt, secret, token string) *Config {
		const long = "-0123456789abcdef"
		c, err := Resolve([]string{"SALT=" + salt + long, "SECRET=" + secret + long, "TOKEN=" + token + long},
			Flags{Config: path})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := resolve("a", "b", "c")
	for _, c := range []struct {
		name  string
		after *Config
		want  []string
	}{
		{"the same", resolve("a", "b", "c"), nil},
		{"salt", resolve("x", "b", "c"), []string{"telemetry"}},
		{"secret of the webhook", resolve("a", "x", "c"), []string{"telemetry"}},
		{"token", resolve("a", "b", "x"), []string{"server"}},
	} {
		if got := needsRestart(before, c.after); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
