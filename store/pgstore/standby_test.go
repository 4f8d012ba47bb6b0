package pgstore_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/pgstore"
)

// TestPromotedStandby: a standby takes the place of a primary whose last commits have not reached
// it. The store follows by itself, and what was lost is the most that is admitted twice.
//
// req: A10, E1, E7
func TestPromotedStandby(t *testing.T) {
	needs.NoRace(t) // the others are for goroutines
	t.Parallel()
	primary := pgtest.Start(t)
	url := primary.Schema(t)
	plan := hourly(t, 10)
	first := open(t, url, nil)
	const kept, lost = 4, 3
	for range kept {
		mustTake(t, first, takeOf(plan, "k"))
	}
	standby := primary.Standby(t)
	until(t, "the standby has all", func() bool {
		return primary.Do("SELECT replay_lsn = pg_current_wal_lsn() FROM pg_stat_replication") == "t"
	})
	both := fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable&target_session_attrs=read-write&schema=%s",
		primary.Addr, standby.Addr, schemaOf(t, url))
	s := open(t, both, nil)
	sender, err := strconv.Atoi(primary.Do("SELECT pid FROM pg_stat_replication"))
	if err != nil {
		t.Fatal(err)
	}
	redistest.Hang(t, sender) // what is committed now, the standby never receives
	for range lost {
		mustTake(t, s, takeOf(plan, "k"))
	}
	if n := used(t, s, plan, "k"); n != kept+lost {
		t.Fatalf("%d units are used, want %d", n, kept+lost)
	}
	primary.Kill9()
	standby.Promote()
	granted := 0
	until(t, "the limit is used up", func() bool {
		v, err := takeOne(t, s, takeOf(plan, "k"))
		if err == nil && v.Allowed {
			granted++
		}
		return err == nil && !v.Allowed
	})
	if granted != 10-kept {
		t.Errorf("%d units were granted after the fail-over, want %d: %d were lost", granted, 10-kept, lost)
	}
	if n := used(t, s, plan, "k"); n != 10 {
		t.Errorf("%d units are used, want 10", n)
	}
	warnsOfStandby(t, s)
}

// warnsOfStandby checks what the store says of a server that a standby follows.
func warnsOfStandby(t *testing.T, s *pgstore.Store) {
	t.Helper()
	f, err := s.Facts(t.Context())
	if err != nil || f.Standby || f.ReadOnly {
		t.Errorf("%+v, %v: want those of a primary", f, err)
	}
	f.Standbys = 1
	if w := strings.Join(f.Warnings(), "\n"); !strings.Contains(w, "synchronous_standby_names") {
		t.Errorf("the warnings are %q", w)
	}
}
