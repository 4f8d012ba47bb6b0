package redisstore_test

import (
	"regexp"
	"sync"
	"testing"

	"github.com/drawgate/drawgate/internal/redistest"
)

// TestTheScriptIsLoadedOnceForAll: calls that the server could not carry out for want of the script
// wait for one that brings it. If each brought it, the server would be busy for longer than they
// may wait.
//
// req: E7
func TestTheScriptIsLoadedOnceForAll(t *testing.T) {
	t.Parallel()
	const callers = 200
	server := redistest.Start(t)
	s, c, plan := open(t, server, nil), client(t, server), day(t, callers+1)
	take(t, s, takeOf(plan, "k", 1))
	for _, words := range [][]string{{"SCRIPT", "FLUSH"}, {"CONFIG", "RESETSTAT"}} {
		if err := c.Do(t.Context(), c.B().Arbitrary(words...).Build()).Error(); err != nil {
			t.Fatal(words, err)
		}
	}
	server.Stop() // so that none is answered before all are on their way
	var wg, begun sync.WaitGroup
	for range callers {
		begun.Add(1)
		wg.Go(func() {
			begun.Done()
			if err := tryTake(t.Context(), s, takeOf(plan, "k", 1)); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	server.Continue()
	wg.Wait()
	if got := peek(t, s, takeOf(plan, "k").Buckets[0]).States[0].Used; got != callers+1 {
		t.Errorf("%d units are used, want %d: each take once", got, callers+1)
	}
	stats, err := c.Do(t.Context(), c.B().Info().Section("commandstats").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	// servers before 7 do not tell a command's parts apart
	if !regexp.MustCompile(`cmdstat_script(\|load)?:calls=1,`).MatchString(stats) {
		t.Errorf("the script was not loaded once:\n%s", stats)
	}
}
