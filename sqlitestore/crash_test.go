package sqlitestore_test

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/sqlitestore"
)

// TestKill kills a process under load, again and again, always on the same file: nothing that was acknowledged is missing, neither from the history
// nor from what is used, and no limit is exceeded. DRAWGATE_CRASH_ROUNDS sets the number of rounds.
//
// req: D2 D11 C1 E1
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := 20
	if text := os.Getenv("DRAWGATE_CRASH_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	path := dbPath(t)
	acked := map[string]bool{}
	for round := range rounds {
		for _, line := range crash(t, path, round) {
			acked[line] = true
		}
		if round%5 == 4 || round == rounds-1 {
			checkCrash(t, path, acked)
		}
	}
	t.Logf("%d kills, %d acknowledged operations, none missing", rounds, len(acked))
}

// crash starts a child, kills it at a random instant, and returns what it acknowledged.
func crash(t *testing.T, path string, round int) []string {
	t.Helper()
	cmd := child(t.Context(), "crash", path, strconv.Itoa(round))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	first, all := make(chan struct{}), make(chan []string)
	go func() { all <- lines(t, bufio.NewScanner(out), first) }()
	if round%4 != 0 { // every fourth may be killed while it opens the file
		<-first
	}
	time.Sleep(rand.N(80 * time.Millisecond))
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	acked := <-all
	if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Fatalf("the child ended by itself: %v", err)
	}
	return acked
}

// checkCrash checks the file that killed processes left behind.
func checkCrash(t *testing.T, path string, acked map[string]bool) {
	t.Helper()
	if found, err := sqlitestore.Pragma(path, "integrity_check"); err != nil || found != "ok" {
		t.Fatalf("integrity_check: %s, %v", found, err)
	}
	s, err := sqlitestore.Open(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found := map[string]bool{}
	sums := map[string]int64{}
	for _, e := range history(t, s, time.Time{}, time.Time{}) {
		id := e.ID
		if id == "" {
			id = e.Labels[0].Value
		}
		line := e.Op + " " + id
		if found[line] {
			t.Errorf("%s is in the history twice", line)
		}
		found[line] = true
		switch e.Op {
		case "settle":
			sums[e.Key.Policy] += e.Units[0].N - 3
		default:
			sums[e.Key.Policy] += e.Units[0].N
		}
	}
	for line := range acked {
		if !found[line] {
			t.Errorf("acknowledged, but not in the history: %s", line)
		}
	}
	tight, wide := plans()
	if n := used(t, s, tight, "k"); n != sums["tight"] || n > tightAmount {
		t.Errorf("used of the tight limit: %d, in the history %d, at most %d", n, sums["tight"], tightAmount)
	}
	if n := used(t, s, wide, "k"); n != sums["wide"] {
		t.Errorf("used of the wide limit: %d, in the history %d", n, sums["wide"])
	}
}
