package engine_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/engine/rules"
)

// perKey is a rule that applies policy p to everybody together, 7 a day, and to each user, 3 a day.
func perKey(name string) rules.Rule {
	r := by(name, "p", `"all"`, "p", "user")
	r.Apply[0].Amounts, r.Apply[1].Amounts = map[string]int64{"day": 7}, map[string]int64{"day": 3}
	return r
}

// waiting starts a take that waits, and returns its error once it is over.
func waiting(ctx context.Context, e *engine.Engine, r *engine.Request) <-chan error {
	done := make(chan error, 1)
	own := *r
	own.Wait = true
	go func() {
		_, err := e.Take(ctx, &own)
		done <- err
	}()
	synctest.Wait()
	return done
}

// TestWaitersKeepTheAmountsOfTheirKey: a rule that applies a policy under two keys counts each
// bucket by its own amounts, also after the configuration was replaced, whatever became of the
// rule's name and position.
func TestWaitersKeepTheAmountsOfTheirKey(t *testing.T) {
	t.Parallel()
	swapped := perKey("r")
	slices.Reverse(swapped.Apply)
	unlike := by("r", "p", `"other"`)
	unlike.Match.User, unlike.Apply[0].Amounts = "nobody", map[string]int64{"day": 9}
	mistaken := perKey("r")
	mistaken.Apply[1].Key = `split(user, ",")[3]` // fails on this request
	for name, list := range map[string][]rules.Rule{
		"the same":          {perKey("r")},
		"renamed":           {perKey("other")},
		"moved":             {by("new", "q", "ip"), perKey("")},
		"behind a namesake": {unlike, perKey("")},
		"swapped":           {swapped},
		"failing":           {mistaken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := engine.Config{
					Policies: policies(perDay("p", 60), perDay("q", 60)),
					Rules:    []rules.Rule{perKey("r")},
				}
				e := newEngine(t, c, nil)
				if got := admitted(t, e, from("u"), 5); got != 3 {
					t.Fatalf("%d admitted, want 3", got)
				}
				start := time.Now()
				done := waiting(t.Context(), e, from("u"))
				c.Rules = list
				if err := e.Replace(c); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil || time.Since(start) < 24*time.Hour-time.Minute {
					t.Errorf("the fourth of 3 a day was admitted after %v: %v", time.Since(start), err)
				}
			})
		})
	}
}

// TestWaitersOfRulesThatAreGone: a bucket that no rule applies any more has the policy's own
// amounts, and one whose policy is gone the ones that it had.
func TestWaitersOfRulesThatAreGone(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policies []engine.Policy
		passes   bool
	}{
		"own amounts":        {policies(perDay("p", 4)), true},
		"lower amounts":      {policies(perDay("p", 2)), false},
		"higher override":    {policies(overridden(4, 9)), true},
		"lower override":     {policies(overridden(60, 3)), false},
		"the policy is gone": {policies(perDay("q", 9)), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := newEngine(t, engine.Config{Policies: policies(perDay("p", 60)), Rules: []rules.Rule{perKey("r")}},
					nil)
				admitted(t, e, from("u"), 3)
				ctx, cancel := context.WithCancel(t.Context())
				done := waiting(ctx, e, from("u"))
				if err := e.Replace(engine.Config{Policies: c.policies}); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				cancel()
				if err := <-done; (err == nil) != c.passes {
					t.Errorf("got %v, want it to pass: %v", err, c.passes)
				}
			})
		})
	}
}

// overridden is a policy p with another amount for user u.
func overridden(own, n int64) engine.Policy {
	p := perDay("p", own)
	p.Overrides = []engine.Override{{Key: "u", Amounts: map[string]int64{"day": n}}}
	return p
}

// TestAskAppliedHasTheAmountsOfItsKey, of what is enforced and of shadows, also when the rules have
// changed since.
func TestAskAppliedHasTheAmountsOfItsKey(t *testing.T) {
	t.Parallel()
	hidden := perKey("hidden")
	hidden.Apply[0].Amounts, hidden.Apply[1].Amounts = map[string]int64{"day": 8}, map[string]int64{"day": 4}
	c := engine.Config{Policies: policies(perDay("p", 60)), Rules: []rules.Rule{perKey("r"), inShadow(hidden)}}
	e := newEngine(t, c, nil)
	res, err := e.Match(from("u").Attributes)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		got := map[string]int64{}
		for i := range res.Applied {
			a, err := e.AskApplied(&res.Applied[i])
			if err != nil {
				t.Fatal(err)
			}
			plan := a.Limiter.Plan()
			got[plan.Name()+" "+a.Key] = plan.Policy().Limits[0].Amount
		}
		if want := map[string]int64{"p all": 7, "p u": 3, "p~shadow all": 8, "p~shadow u": 4}; !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	check()
	if err := e.Replace(engine.Config{
		Policies: policies(perDay("p", 5)),
		Rules:    []rules.Rule{by("r", "p", "user")},
	}); err != nil {
		t.Fatal(err)
	}
	check()
	byName, err := e.AskApplied(&engine.Applied{Rule: -1, Policy: "p", Key: "u"}, drawgate.Requests(2))
	if err != nil || byName.Limiter.Plan().Policy().Limits[0].Amount != 5 || len(byName.Costs) != 1 {
		t.Errorf("%v: %+v", err, byName)
	}
}
