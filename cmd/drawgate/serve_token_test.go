//go:build unix

package main

import (
	"strings"
	"testing"
)

// The start says if nobody needs a token: a line of secrets that is not read leaves none.
func TestStartTellsThatNoTokenIsDemanded(t *testing.T) {
	t.Parallel()
	const policy = "RATE_LIMIT_PER_DAY=5"
	for _, c := range []struct {
		env  []string
		want bool
	}{
		{[]string{policy, "DRAWGATE_TAKE_TOKEN=0123456789abcdef"}, false},
		{[]string{policy, "DRAWGATE_TAKE_TOKN=0123456789abcdef"}, true},
		{nil, false}, // somebody tries it out, with the sample
	} {
		b := newBench(t, c.env...)
		d := b.background("serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		d.log.await(t, `(administration at)`) // comes last
		if have := strings.Contains(d.log.String(), "no access token is demanded"); have != c.want {
			t.Errorf("%s: told: %t, want %t\n%s", c.env, have, c.want, d.log.String())
		}
	}
}
