package main

import "testing"

// A command that ignores SIGTERM is ended when drawgate is killed, because nobody renews its hold.
// Only Linux signals a process when its parent has ended.
func TestKillingDrawgateKillsItsCommand(t *testing.T) {
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
