package sqlitestore_test

import (
	"bufio"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// tightPerRound is how much of the tight limit there is for each round: a third of what a round
// takes if there is enough. So some kills come while it is being used up, and some when takes are
// refused and settlements give back what others take at once.
const tightPerRound = 5

// TestKill kills a process under load, again and again, always on the same file: nothing that was
// acknowledged is missing, neither from the history nor from what is used, and a limit that is
// asked for more than it has grants exactly that. DRAWGATE_CRASH_ROUNDS sets the number of rounds;
// on a slow machine they go on until the limit is exhausted.
//
// req: D2 D11 C1 E1
func TestKill(t *testing.T) {
	t.Parallel()
	rounds := needs.Rounds(5, 20, 20)
	if text := os.Getenv("DRAWGATE_CRASH_ROUNDS"); text != "" {
		var err error
		if rounds, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	k := kills{path: dbPath(t), amount: int64(tightPerRound * rounds), acked: map[string]bool{}}
	round := 0
	for ; round < rounds || k.refused == 0 && round < 10*rounds; round++ {
		k.crash(t, round)
		if round%5 == 4 {
			k.check(t)
		}
	}
	k.check(t)
	n := k.exhaust(t)
	t.Logf("%d kills, %d acknowledged operations, none missing; %d of %d units of the tight limit granted, %d takes refused", round, len(k.acked), n, k.amount, k.refused)
}

// kills is what processes were told before they were killed.
type kills struct {
	path    string
	amount  int64           // of the tight limit
	acked   map[string]bool // the lines of what was done
	refused int             // takes
}

// crash starts a child, kills it at a random instant, and notes what it acknowledged.
func (k *kills) crash(t *testing.T, round int) {
	t.Helper()
	cmd := child(t.Context(), "crash", k.path, strconv.Itoa(round), strconv.FormatInt(k.amount, 10))
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
	for _, line := range acked {
		if strings.HasPrefix(line, refused+" ") {
			k.refused++
		} else {
			k.acked[line] = true
		}
	}
}

// check checks the file that killed processes left behind.
func (k *kills) check(t *testing.T) {
	t.Helper()
	if found, err := sqlitestore.Pragma(k.path, "integrity_check"); err != nil || found != "ok" {
		t.Fatalf("integrity_check: %s, %v", found, err)
	}
	s, err := sqlitestore.Open(k.path, nil)
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
	for line := range k.acked {
		if !found[line] {
			t.Errorf("acknowledged, but not in the history: %s", line)
		}
	}
	if n := used(t, s, tightPlan(k.amount), "k"); n != sums["tight"] || n > k.amount {
		t.Errorf("used of the tight limit: %d, in the history %d, at most %d", n, sums["tight"], k.amount)
	}
	if n := used(t, s, widePlan(), "k"); n != sums["wide"] {
		t.Errorf("used of the wide limit: %d, in the history %d", n, sums["wide"])
	}
}

// exhaust takes what settlements gave back of the tight limit at last, and returns how much of it
// was granted in all.
func (k *kills) exhaust(t *testing.T) int64 {
	t.Helper()
	s, err := sqlitestore.Open(k.path, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tight := tightPlan(k.amount)
	n := used(t, s, tight, "k")
	const most = 8 + 2 // a unit that each goroutine gave back, and less than one of them asked for
	if k.refused == 0 || n < k.amount-most {
		t.Fatalf("killed processes took %d of %d units and were refused %d times: the limit was never exhausted", n,
			k.amount, k.refused)
	}
	n += takes(t, s, tight, "k")
	if now := used(t, s, tight, "k"); n != k.amount || now != k.amount {
		t.Errorf("%d granted and %d used of the tight limit, want %d", n, now, k.amount)
	}
	return n
}
