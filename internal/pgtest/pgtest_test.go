package pgtest

import (
	"context"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func TestSchemasOfTheSharedServer(t *testing.T) {
	s := Shared(t)
	var names []string
	t.Run("test", func(t *testing.T) {
		for range 2 {
			u, err := url.Parse(s.Schema(t))
			if err != nil {
				t.Fatal(err)
			}
			if u.Host != s.Addr {
				t.Errorf("the URL has the address %s, want %s", u.Host, s.Addr)
			}
			name := u.Query().Get("schema")
			s.Do("CREATE TABLE " + name + ".t AS SELECT 1 AS a, 'x' AS b UNION ALL SELECT 2, NULL")
			names = append(names, name)
		}
		if names[0] == names[1] {
			t.Errorf("two schemas are called %s", names[0])
		}
		if got := s.Do("SELECT * FROM " + names[0] + ".t ORDER BY a"); got != "1|x\n2|" {
			t.Errorf("the table has %q", got)
		}
	})
	if got := s.Do("SELECT count(*) FROM pg_namespace WHERE nspname IN ('" + strings.Join(names, "','") + "')"); got != "0" {
		t.Errorf("%s schemas are left after the test", got)
	}
	if again := Shared(t); again.PID() != s.PID() {
		t.Errorf("a second server is shared, with process %d besides %d", again.PID(), s.PID())
	}
}

func TestSettings(t *testing.T) {
	t.Parallel()
	s := Start(t, "max_connections=17", "fsync=on")
	if got := s.Do("SHOW max_connections; SHOW fsync; SHOW synchronous_commit"); got != "17\non\non" {
		t.Errorf("the settings are %q", got)
	}
}

func TestKilledServerKeepsWhatItCommitted(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Do("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")
	pid := s.PID()
	s.Kill9()
	if left := killIn(s.data()); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if c, err := net.Dial("tcp", s.Addr); err == nil {
		_ = c.Close()
		t.Error("a killed server listens")
	}
	s.Restart()
	if got := s.Do("INSERT INTO t VALUES (2); SELECT sum(n) FROM t"); got != "3" || s.PID() == pid {
		t.Errorf("process %d after %d; the sum is %s, want 3", s.PID(), pid, got)
	}
	s.Shutdown()
	if _, err := s.try("SELECT 1"); err == nil {
		t.Error("a server that was shut down answers")
	}
	s.Restart()
	s.Restart() // in place of the running one
	if got := s.Do("SELECT sum(n) FROM t"); got != "3" {
		t.Errorf("after more restarts the sum is %s, want 3", got)
	}
}

func TestServerRecoversFromAKilledBackend(t *testing.T) {
	t.Parallel()
	s := Start(t)
	asleep := make(chan error)
	go func() {
		_, err := s.try("SELECT pg_sleep(600)")
		asleep <- err
	}()
	var pid int
	until(t, "the backend sleeps", func() bool {
		pid, _ = strconv.Atoi(s.Do("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
		return pid > 0
	})
	s.KillBackend(pid)
	if err := <-asleep; err == nil {
		t.Error("a killed backend answers")
	}
	until(t, "the server has recovered", func() bool {
		_, err := s.try("SELECT 1")
		return err == nil
	})
}

func TestPromotedStandby(t *testing.T) {
	t.Parallel()
	s := Start(t)
	s.Do("CREATE TABLE t AS SELECT 1 AS n")
	standby := s.Standby(t)
	s.Do("INSERT INTO t VALUES (2)")
	until(t, "the standby has the row", func() bool { return standby.Do("SELECT sum(n) FROM t") == "3" })
	if _, err := standby.try("INSERT INTO t VALUES (4)"); err == nil {
		t.Error("a standby writes")
	}
	s.Kill9()
	standby.Promote()
	if got := standby.Do("INSERT INTO t VALUES (4); SELECT sum(n) FROM t"); got != "7" {
		t.Errorf("after the fail-over the sum is %s, want 7", got)
	}
	standby.Restart()
	if got := standby.Do("SELECT sum(n), pg_is_in_recovery() FROM t"); got != "7|f" {
		t.Errorf("after a restart of the new primary: %s, want 7|f", got)
	}
}

func TestPoolerLendsConnectionsForATransaction(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	direct := s.Schema(t)
	pooled := s.Pooler(t, direct, "default_pool_size = 1")
	base, schema, _ := strings.Cut(pooled, "&schema=")
	if base == s.URL() || !strings.HasSuffix(direct, "&schema="+schema) {
		t.Errorf("%s is to lead to %s, through PgBouncer", pooled, direct)
	}
	var pids []string
	for range 2 { // each time on a new connection to PgBouncer
		pid, err := onNew(base, "SELECT pg_backend_pid()")
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if pids[0] != pids[1] {
		t.Errorf("a pool of one connection uses processes %v", pids)
	}
}

// onNew runs SQL on a new connection.
func onNew(url, sql string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := pgconn.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer c.Close(ctx)
	return answers(c.Exec(ctx, sql).ReadAll())
}
