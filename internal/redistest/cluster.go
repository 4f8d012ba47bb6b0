package redistest

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// slots is how many slots a cluster has.
const slots = 16384

// Cluster is a cluster of three primaries, of which each has a third of the slots, and as many
// replicas.
type Cluster struct {
	Primaries []*Server // as they were at the start, in the order of their slots
	Replicas  []*Server // Replicas[i] is that of Primaries[i]
}

// NodeTimeout is after how long without an answer the nodes of a cluster, or Sentinels, replace a
// server, if a test is about that. Otherwise they wait longer than a busy machine lets a server
// wait.
const NodeTimeout = time.Second

func nodeTimeout(failOver bool) time.Duration {
	if failOver {
		return NodeTimeout
	}
	return patience
}

// StartCluster starts a cluster, with further arguments for each server, and stops it at the test's
// end. Without replicas it has three servers, and nothing replaces one.
func StartCluster(tb testing.TB, replicas bool, args ...string) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for i := range 6 {
		if i >= 3 && !replicas {
			break
		}
		s := Start(tb, append([]string{
			"--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(tb.TempDir(), "nodes.conf"),
			"--cluster-node-timeout", strconv.FormatInt(nodeTimeout(replicas).Milliseconds(), 10),
			"--cluster-require-full-coverage", "no",
			"--repl-ping-replica-period", "1", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
		}, args...)...)
		if i < 3 {
			c.Primaries = append(c.Primaries, s)
		} else {
			c.Replicas = append(c.Replicas, s)
		}
	}
	for i, s := range c.Primaries {
		s.Do("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		words := []string{"CLUSTER", "ADDSLOTS"}
		for slot := i * slots / 3; slot < (i+1)*slots/3; slot++ {
			words = append(words, strconv.Itoa(slot))
		}
		s.Do(words...)
	}
	for _, s := range c.All()[1:] {
		host, port, _ := net.SplitHostPort(c.Primaries[0].Addr)
		s.Do("CLUSTER", "MEET", host, port)
	}
	c.wait("all nodes know each other", c.All(), func(s *Server) bool {
		return strings.Count(s.Do("CLUSTER", "NODES"), "\n") == len(c.All())
	})
	for i, s := range c.Replicas {
		s.Do("CLUSTER", "REPLICATE", c.Primaries[i].Do("CLUSTER", "MYID"))
	}
	c.wait("the cluster works", c.All(), func(s *Server) bool {
		info := s.Do("CLUSTER", "INFO") // it is ok before the node knows who has which slots
		return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_slots_ok:16384") &&
			strings.Count(s.Do("CLUSTER", "NODES"), "slave") >= len(c.Replicas)
	})
	c.wait("the replicas follow", c.Replicas, func(s *Server) bool {
		return strings.Contains(s.Do("INFO", "replication"), "master_link_status:up")
	})
	return c
}

func (c *Cluster) wait(what string, of []*Server, f func(*Server) bool) {
	for _, s := range of {
		s.tb.Helper()
		until(s.tb, what, func() bool { return f(s) })
	}
}

// All returns all servers, those that are primaries at the start first.
func (c *Cluster) All() []*Server {
	return slices.Concat(c.Primaries, c.Replicas)
}

// URL returns the cluster's URL, which names two of its servers.
func (c *Cluster) URL() string {
	return "redis+cluster://" + c.Primaries[0].Addr + "," + c.Primaries[2].Addr
}

// Addrs returns the addresses of all servers.
func (c *Cluster) Addrs() (addrs []string) {
	for _, s := range c.All() {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Move moves a slot, with all of its keys, from one primary to another. between is called when half
// of the keys are moved.
func (c *Cluster) Move(slot int, from, to *Server, between func()) {
	from.tb.Helper()
	n, source, target := strconv.Itoa(slot), from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", n, "IMPORTING", source)
	from.Do("CLUSTER", "SETSLOT", n, "MIGRATING", target)
	host, port, _ := net.SplitHostPort(to.Addr)
	move := func(most int) {
		for range most {
			key, _, _ := strings.Cut(from.Do("CLUSTER", "GETKEYSINSLOT", n, "1"), "\n")
			if key == "" {
				return
			}
			from.Do("MIGRATE", host, port, key, "0", "60000") // in ms
		}
	}
	count, _ := strconv.Atoi(from.Do("CLUSTER", "COUNTKEYSINSLOT", n))
	move(count / 2)
	if between != nil {
		between()
	}
	move(1 << 30)
	for _, s := range []*Server{to, from} {
		s.Do("CLUSTER", "SETSLOT", n, "NODE", target)
	}
}

// Sentinels is a primary with a replica, and three Sentinels that watch them.
type Sentinels struct {
	Primary, Replica *Server // as they were at the start
	Watchers         []*Server
}

// Master is the name by which Sentinels know the primary.
const Master = "drawgate-test"

// StartSentinels starts a primary, a replica and three Sentinels, and stops them at the test's end.
// failOver says that the test is about a fail-over.
func StartSentinels(tb testing.TB, failOver bool, args ...string) *Sentinels {
	tb.Helper()
	s := &Sentinels{Primary: Start(tb, append([]string{"--repl-diskless-sync-delay", "0"}, args...)...)}
	host, port, _ := net.SplitHostPort(s.Primary.Addr)
	s.Replica = Start(tb, append([]string{"--replicaof", host, port}, args...)...)
	until(tb, "the replica follows", func() bool {
		return strings.Contains(s.Replica.Do("INFO", "replication"), "master_link_status:up")
	})
	for range 3 {
		w := launch(&Server{tb: tb, dir: tb.TempDir(), sentinel: true})
		w.Do("SENTINEL", "MONITOR", Master, host, port, "2")
		for name, value := range map[string]time.Duration{
			"down-after-milliseconds": nodeTimeout(failOver), "failover-timeout": 5 * NodeTimeout,
		} {
			w.Do("SENTINEL", "SET", Master, name, strconv.FormatInt(value.Milliseconds(), 10))
		}
		s.Watchers = append(s.Watchers, w)
	}
	for _, w := range s.Watchers {
		until(tb, "the Sentinels know all", func() bool {
			text := w.Do("INFO", "sentinel")
			return strings.Contains(text, "slaves=1,sentinels=3")
		})
	}
	return s
}

// URL returns the URL that names the Sentinels and their master.
func (s *Sentinels) URL() string {
	var addrs []string
	for _, w := range s.Watchers {
		addrs = append(addrs, w.Addr)
	}
	return "redis+sentinel://" + strings.Join(addrs, ",") + "/" + Master
}

// Do sends one command to the server, and returns its answer as text: a list's elements are lines.
func (s *Server) Do(words ...string) string {
	s.tb.Helper()
	text, err := s.try(words...)
	if err != nil {
		s.tb.Fatalf("%s to %s: %v", strings.Join(words[:min(2, len(words))], " "), s.Addr, err)
	}
	return text
}

func (s *Server) try(words ...string) (string, error) {
	c, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{s.Addr}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
		AlwaysRESP2: true, ClientSetInfo: rueidis.DisableClientSetInfo, PipelineMultiplex: -1,
	})
	if err != nil {
		return "", err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = c.Do(ctx, c.B().Readonly().Build()).Error() // a replica of a cluster answers then; others do not know it
	m, err := c.Do(ctx, c.B().Arbitrary(words...).Build()).ToMessage()
	if rueidis.IsRedisNil(err) {
		return "", nil
	} else if err != nil {
		return "", err
	}
	return textOf(&m), nil
}

func textOf(m *rueidis.RedisMessage) string {
	if list, err := m.ToArray(); err == nil {
		var lines []string
		for i := range list {
			lines = append(lines, textOf(&list[i]))
		}
		return strings.Join(lines, "\n")
	}
	if n, err := m.AsInt64(); err == nil {
		return strconv.FormatInt(n, 10)
	}
	text, _ := m.ToString()
	return text
}

// until calls f until it reports true.
func until(tb testing.TB, what string, f func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !f(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not after %v: %s", patience, what)
		}
	}
}
