package dynamostore_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// TestWidthIsNoUse: what a new process does not know of the time is neither use nor debt, and a
// burst of new processes gets all of a limit, and no more.
//
// req: A4, A5, A8
func TestWidthIsNoUse(t *testing.T) {
	t.Parallel()
	c, table := client(t, awstest.Dynalite(t))
	plan, err := drawgate.Policy{Name: "llm", Limits: []drawgate.Limit{
		drawgate.BucketLimit("rpm", 5, time.Minute, 5), drawgate.BucketLimit("tpm", 250_000, time.Minute,
			250_000).Of("tokens"),
	}}.Compile()
	if err != nil {
		t.Fatal(err)
	}
	for _, takes := range []int64{1, 5} {
		for _, contested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d takes, contested %t", takes, contested), func(t *testing.T) {
				t.Parallel()
				now, opts := time.Now().UnixMicro(), &dynamostore.Options{Prefix: prefix()}
				clock := func() int64 { return now }
				open := func(behind time.Duration) *dynamostore.Store { // a new process
					s := dynamostore.NewWithErrorOf(c, table, opts, behind, 1010*time.Millisecond, clock)
					t.Cleanup(func() { _ = s.Close() })
					if contested {
						s.Contest()
					}
					return s
				}
				cost := func(n int64) []store.BucketCost {
					return []store.BucketCost{{
						Key: store.Key{Policy: "llm", Name: "k"}, Plan: plan.Plan,
						N: store.Amounts{n * 5 / takes, n * 250_000 / takes},
					}}
				}
				for i := range takes {
					now += 20_000
					if d, err := take(t.Context(), open(time.Duration(i%3)*400*time.Millisecond),
						store.Take{Buckets: cost(1)}); err != nil || !d.Allowed {
						t.Errorf("take %d of %d: allowed %t, %v", i+1, takes, d.Allowed, err)
					}
				}
				s, out := open(0), make([]store.State, 1)
				if err := s.Peek(t.Context(), cost(0), 0, out); err != nil || out[0].Fail != nil {
					t.Fatal(err, out[0].Fail)
				}
				for i, want := range []int64{5, 250_000} {
					if u := out[0].States[i]; u.Used > want || u.Used < want*98/100 || u.Debt != 0 {
						t.Errorf("limit %d: %d used and %d debt, want %d and none", i, u.Used, u.Debt, want)
					}
				}
				if d, err := take(t.Context(), s, store.Take{Buckets: cost(1)}); err != nil || d.Allowed {
					t.Errorf("one more: allowed %t, %v", d.Allowed, err)
				}
			})
		}
	}
}
