package main

import "testing"

// A command that ignores SIGTERM does not go on when nobody renews its hold. Only Linux tells a
// process that its parent has ended.
func TestCommandOfOneThatWasKilledIsKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	j := b.start(stubborn)
	if err := j.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if rest, _ := j.end(t); rest != "" {
		t.Errorf("it said %q", rest)
	}
}
