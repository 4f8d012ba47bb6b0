package config_test

import (
	"slices"
	"testing"

	"github.com/drawgate/drawgate/config"
)

// Compare lists every setting that differs once, without secrets, and nothing else.
func TestCompareListsEveryDifference(t *testing.T) {
	t.Parallel()
	parse := func(text string) *config.Config {
		c, problems := config.Parse("x.yaml",
			[]byte(text+"policies: {api: {limits: [{name: rpm, rolling: 1m, amount: 10}]}}\n"))
		if len(problems) > 0 {
			t.Fatalf("got problems %v, want none", problems)
		}
		return c
	}
	before := parse("store: redis://:hidden@localhost/0\nmax_buckets: 7\nstart_full: true\nserver: {listen: 'localhost:1', insecure: true}\n")
	after := parse("store: redis://:other@localhost/1\nenabled: false\nmax_buckets: 7\nprefix: p\ninstances: 3\nserver: {listen: 'localhost:1', grpc: 'localhost:2'}\n" +
		"envoy: {headers: draft}\n")
	want := []config.Difference{
		{"store", "redis://:xxxxx@localhost/0", "redis://:xxxxx@localhost/1", true},
		{"start", "full", "default", true},
		{"server.insecure", "true", "false", true},
		{"prefix", "default", "p", true},
		{"enabled", "true", "false", false},
		{"instances", "default", "3", true},
		{"server.grpc", "default", `"localhost:2"`, true},
		{"envoy.headers", "default", "draft", true},
	}
	if got := config.Compare(before, after); !slices.Equal(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got := config.Compare(before,
		parse("store: redis://:new@localhost/0\nmax_buckets: 7\nstart_full: true\nserver: {listen: 'localhost:1', insecure: true}\n")); len(got) > 0 {
		t.Errorf("another password: %+v", got)
	}
}
