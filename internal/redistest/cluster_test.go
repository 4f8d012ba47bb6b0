package redistest

import (
	"strings"
	"testing"
)

func TestCluster(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, true)
	const key, slot = "foo", 12182
	from, to := c.Primaries[2], c.Primaries[0]
	from.Do("SET", key, "x")
	c.Move(slot, from, to, nil)
	if got := to.Do("GET", key); got != "x" {
		t.Errorf("a slot was moved, and its key is %q", got)
	}
	c.Primaries[1].Kill9()
	until(t, "the replica takes over", func() bool {
		return strings.Contains(c.Replicas[1].Do("INFO", "replication"), "role:master")
	})
}

func TestSentinels(t *testing.T) {
	t.Parallel()
	s := StartSentinels(t, true)
	s.Primary.Do("SET", "key", "x")
	until(t, "the replica has the key", func() bool { return s.Replica.Do("GET", "key") == "x" })
	s.Primary.Kill9()
	until(t, "the replica takes over", func() bool {
		text, _ := s.Replica.try("INFO", "replication") // it cuts connections when it takes over
		return strings.Contains(text, "role:master")
	})
	if got := s.Replica.Do("GET", "key"); got != "x" {
		t.Errorf("after the fail-over the key is %q", got)
	}
}
