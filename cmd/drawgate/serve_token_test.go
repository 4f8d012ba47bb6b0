//go:build unix

package main

import (
	"strings"
	"testing"
)

// The start says if nobody needs a token: a line of secrets that is not read leaves none.
func TestStartTellsThatNoTokenIsDemanded(t *testing.T) {
	t.Parallel()
	for env, want := range map[string]bool{"DRAWGATE_TAKE_TOKEN=0123456789abcdef": false, "DRAWGATE_TAKE_TOKN=0123456789abcdef": true} {
		b := newBench(t, env)
		d := b.background("serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		d.log.await(t, `(administration at)`) // comes last
		if have := strings.Contains(d.log.String(), "no access token is demanded"); have != want {
			t.Errorf("%s: told: %t, want %t\n%s", env, have, want, d.log.String())
		}
	}
}
