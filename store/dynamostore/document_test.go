package dynamostore_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// scenarios are those of the document on the distributed limiter of Lambda functions, in its order
// and with its names. Each runs by the preset that was made for the document.
var scenarios = []struct {
	requirement, name string
	run               func(t *testing.T, c *cloud, prefix string)
}{
	{"token bucket", "acquire tokens from distributed bucket", acquireTokens},
	{"token bucket", "handle insufficient tokens with wait-and-retry", waitAndRetry},
	{"token bucket", "prevent race conditions with conditional writes", preventRaces},
	{"refill", "refill tokens after one minute elapsed", refillAfterAMinute},
	{"refill", "partial refill for fractional time periods", partialRefill},
	{"refill", "daily limit tracking and reset", dailyLimit},
	{"state", "create rate limit bucket on first use", firstUse},
	{"state", "update bucket state atomically", updateAtomically},
	{"state", "clean up expired rate limit buckets", cleanUp},
	{"fallback", "fallback to per-instance limiting on DynamoDB error", fallBack},
	{"fallback", "the same with high latency", fallBackFromLatency},
	{"fallback", "handle DynamoDB throttling", throttling},
	{"fallback", "recover from transient DynamoDB errors", transientErrors},
	{"monitoring", "emit rate limit compliance metrics", complianceMetrics},
	{"monitoring", "alert on rate limit violations", alertOnViolations},
	{"monitoring", "track distributed coordinator performance", coordinatorPerformance},
}

// TestDocumentScenarios takes the document as a test. DynamoDB, CloudWatch and SNS are those of one
// moto; the time is that of a bubble, which begins at midnight UTC, 2000-01-01.
//
// req: A1, A2, A3, A4, A5, A6, A7, A8, A9, A10, A11, A12, A13, A14, A15
func TestDocumentScenarios(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	for _, s := range scenarios {
		t.Run(s.requirement+"/"+s.name, func(t *testing.T) {
			t.Parallel()
			own := prefix()
			synctest.Test(t, func(t *testing.T) { s.run(t, c, own) })
		})
	}
}

// req: A1
func acquireTokens(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	a.must(245_000)
	if left := a.left()[tpm]; left != 5_000 {
		t.Fatalf("%d tokens are available, want 5,000", left)
	}
	a.must(3_750)
	if left := b.left()[tpm]; left != 1_250 {
		t.Errorf("%d tokens remain, want 1,250", left)
	}
	if left := a.row().tokens["tpm"]; left != 1_250 {
		t.Errorf("the item has %d tokens, want 1,250", left)
	}
	// Nobody else gets any of the 3,750.
	if d := b.acquire(1_251); d.Allowed {
		t.Error("another instance got tokens that were allocated")
	}
	b.must(1_250)
	if left := a.left()[tpm]; left != 0 {
		t.Errorf("%d tokens remain, want none", left)
	}
}

// Others use what comes in until 6 s have passed, so that each step of the back-off is needed.
//
// req: A2
func waitAndRetry(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	b.must(249_000)
	d := a.acquire(3_750)
	refused, ok := errors.AsType[*drawgate.LimitedError](d.Err())
	if d.Allowed || !ok || !errors.Is(d.Err(), drawgate.ErrLimited) || refused.Limit != "tpm" {
		t.Fatalf("allowed %v, %v; want a rate limit error of tpm", d.Allowed, d.Err())
	}
	if left := b.left()[tpm]; left != 1_000 {
		t.Errorf("%d tokens after the refusal, want 1,000", left)
	}
	began, before := time.Now(), len(a.wire.sent(""))
	others := make(chan struct{})
	go func() {
		defer close(others)
		for _, at := range []time.Duration{1999 * time.Millisecond, 5999 * time.Millisecond} {
			time.Sleep(at - time.Since(began))
			b.must(b.left()[tpm])
		}
	}()
	d, err := a.lim.Wait(t.Context(), project, tokensOf(3_750))
	<-others
	if took := time.Since(began); err != nil || !d.Allowed || took.Round(10*time.Millisecond) != 14*time.Second {
		t.Errorf("allowed %v after %v, %v; want it after 2 s + 4 s + 8 s", d.Allowed, took, err)
	}
	var attempts []time.Duration
	for _, s := range a.wire.sent("")[before:] {
		if at := s.at.Sub(began).Round(10 * time.Millisecond); len(attempts) == 0 || attempts[len(attempts)-1] != at {
			attempts = append(attempts, at)
		}
	}
	if len(attempts) != 4 || attempts[0] != 0 || attempts[1] != 2*time.Second || attempts[2] != 6*time.Second ||
		attempts[3] != 14*time.Second {
		t.Errorf("it asked at %v", attempts)
	}
}

// req: A3
func preventRaces(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	a.must(245_000)
	a.left() // so that both read what is there now
	b.left()
	together(a, b)
	decisions := make([]drawgate.Decision, 2)
	var both sync.WaitGroup
	for i, in := range []*instance{a, b} {
		both.Go(func() { decisions[i] = in.acquire(3_750) })
	}
	both.Wait()
	winner, loser := a, b
	if decisions[1].Allowed {
		winner, loser = b, a
	}
	if decisions[0].Allowed == decisions[1].Allowed {
		t.Fatalf("the two were allowed: %v, %v", decisions[0].Allowed, decisions[1].Allowed)
	}
	if winner.conflicts() != 0 || loser.conflicts() != 1 {
		t.Errorf("%d conflicts of the winner and %d of the other one, want 0 and 1", winner.conflicts(),
			loser.conflicts())
	}
	puts := loser.wire.sent("PutItem")
	if last := puts[len(puts)-1]; !strings.Contains(last.refusal, "ConditionalCheckFailedException") {
		t.Errorf("the one that came second was answered %q", last.refusal)
	}
	if left := a.left(); left[tpm] != 1_250 || left[rpm] != 3 || left[rpd] != 22 {
		t.Errorf("%v remain, want 3, 1,250 and 22", left)
	}
	// Where there is enough for both, the one that came second succeeds by its retry.
	time.Sleep(time.Minute)
	together(a, b)
	for i, in := range []*instance{a, b} {
		both.Go(func() { decisions[i] = in.acquire(3_750) })
	}
	both.Wait()
	if !decisions[0].Allowed || !decisions[1].Allowed || a.conflicts()+b.conflicts() != 2 {
		t.Errorf("allowed %v and %v, with %d conflicts in all, want 2", decisions[0].Allowed, decisions[1].Allowed,
			a.conflicts()+b.conflicts())
	}
	if left := a.left(); left[tpm] != 250_000-2*3_750 || left[rpm] != 3 {
		t.Errorf("%v remain after two more", left)
	}
}

// use uses up 5 requests and 250,000 tokens.
func (in *instance) use() {
	in.t.Helper()
	for range 5 {
		in.must(50_000)
	}
	if d := in.acquire(1); d.Allowed {
		in.t.Fatal("a sixth request was allowed")
	}
}

// req: A4
func refillAfterAMinute(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	list := []*instance{c.instance(t, prefix), c.instance(t, prefix), c.instance(t, prefix)}
	list[0].use()
	time.Sleep(time.Minute)
	for _, in := range list {
		for range 2 { // to look is not to refill
			if left := in.left(); left[rpm] != 5 || left[tpm] != 250_000 {
				t.Errorf("%v remain after a minute, want 5 and 250,000", left)
			}
		}
	}
	// All refill at the same instant, and each tries to use the whole minute.
	stop(list...)
	var mu sync.Mutex
	granted := 0
	var all sync.WaitGroup
	for _, in := range list {
		for range 4 {
			all.Go(func() {
				if in.acquire(50_000).Allowed {
					mu.Lock()
					granted++
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	if left := list[0].left(); granted != 5 || left[rpm] != 0 || left[tpm] != 0 {
		t.Errorf("%d requests of 50,000 tokens were granted, and %v remain; want 5 and nothing", granted, left)
	}
	if got, want := list[0].row().refilled, time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("lastRefillTimestamp is %v, want the minute %v", got.UTC(), want)
	}
}

// req: A5
func partialRefill(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	a.use()
	time.Sleep(30 * time.Second)
	if left := b.left(); left[rpm] != 2 || left[tpm] != 125_000 {
		t.Errorf("%v remain after 30 s, want 2 whole requests and 125,000 tokens", left)
	}
	b.must(125_000)
	if got := a.row().refilled; !got.Equal(time.Now()) {
		t.Errorf("lastRefillTimestamp is %v, want %v", got.UTC(), time.Now().UTC())
	}
	// 2.5 requests came in, and one was taken: half a request later there are two.
	if left := a.left()[rpm]; left != 1 {
		t.Errorf("%d requests remain, want 1", left)
	}
	time.Sleep(6*time.Second - time.Microsecond)
	if left := a.left()[rpm]; left != 1 {
		t.Errorf("%d requests remain a moment before the next one, want 1", left)
	}
	time.Sleep(time.Microsecond)
	if left := a.left(); left[rpm] != 2 || left[tpm] != 25_000 {
		t.Errorf("%v remain 6 s later, want 2 and 25,000", left)
	}
	time.Sleep(24 * time.Second)
	if left := b.left(); left[rpm] != 4 || left[tpm] != 125_000 {
		t.Errorf("%v remain after the whole minute, want 4 and 125,000", left)
	}
}

// req: A6
func dailyLimit(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a := c.instance(t, prefix)
	for range 24 {
		a.must(1_000)
		time.Sleep(12 * time.Second)
	}
	midnight := time.Date(2000, 1, 1, 8, 0, 0, 0, time.UTC) // in California
	d := a.acquire(1_000)
	refused, ok := errors.AsType[*drawgate.LimitedError](d.Err())
	if d.Allowed || !ok || refused.Limit != "rpd" || !refused.ResetAt.Equal(midnight) ||
		!strings.Contains(refused.Error(), "2000-01-01T08:00:00Z") {
		t.Fatalf("request 25: allowed %v, %v; want a refusal until %v", d.Allowed, d.Err(), midnight)
	}
	time.Sleep(time.Until(midnight) - time.Microsecond)
	if d := a.acquire(1_000); d.Allowed {
		t.Error("a request was allowed before midnight")
	}
	time.Sleep(time.Microsecond)
	st, err := a.lim.Status(t.Context(), project)
	if err != nil || st.States[rpd].Used != 0 || a.left()[rpd] != 24 {
		t.Errorf("at midnight %d are used and %d remain, %v; want 0 and 24", st.States[rpd].Used, a.left()[rpd], err)
	}
	a.must(1_000)
}

// req: A7
func firstUse(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	if a.row() != nil {
		t.Fatal("there is an item already")
	}
	if left := a.left(); left != [3]int64{5, 250_000, 24} || a.row() != nil {
		t.Errorf("%v remain of a bucket that nobody has used, want all; to look must not create it", left)
	}
	together(a, b)
	var both sync.WaitGroup
	for _, in := range []*instance{a, b} {
		both.Go(func() { in.must(3_750) })
	}
	both.Wait()
	if n := a.conflicts() + b.conflicts(); n != 1 {
		t.Errorf("%d conflicts, want 1: one of the two creates the item", n)
	}
	for _, in := range []*instance{a, b} {
		if first := in.wire.sent("PutItem")[0]; !strings.Contains(first.body, `"attribute_not_exists(#key)"`) {
			t.Errorf("the item was created without a condition: %s", first.body)
		}
	}
	r := a.row()
	if r.tokens["rpm"] != 3 || r.tokens["tpm"] != 242_500 || r.tokens["rpd"] != 22 || r.writes != 2 {
		t.Errorf("after two uses the item has %v", r.tokens)
	}
	if life := time.Until(r.ttl); life < 7*24*time.Hour || life > 9*24*time.Hour {
		t.Errorf("the item lives for %v, want 7 days and what still counts of the day", life)
	}
	ttl, err := c.admin.DescribeTimeToLive(t.Context(),
		&dynamodb.DescribeTimeToLiveInput{TableName: aws.String(quotas)})
	if err != nil || ttl.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled ||
		*ttl.TimeToLiveDescription.AttributeName != dynamostore.TTLAttribute {
		t.Errorf("the table does not delete what has expired: %+v, %v", ttl, err)
	}
}

// req: A8
func updateAtomically(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a := c.instance(t, prefix)
	a.must(240_000)
	if left := a.left()[tpm]; left != 10_000 {
		t.Fatalf("%d tokens, want 10,000", left)
	}
	// Three instances take 3,750 tokens together, and all of them write at the same time.
	list := []*instance{c.instance(t, prefix), c.instance(t, prefix), c.instance(t, prefix)}
	stop(append(list, a)...)
	together(list...)
	var all sync.WaitGroup
	for _, in := range list {
		all.Go(func() { in.must(1_250) })
	}
	all.Wait()
	conflicts := 0
	for _, in := range list {
		conflicts += in.conflicts()
		for _, put := range in.wire.sent("PutItem") {
			if !strings.Contains(put.body, `"#life = :life AND #writes = :writes"`) {
				t.Errorf("a write without its condition: %s", put.body)
			}
		}
	}
	if conflicts < 2 {
		t.Errorf("%d conflicts, want at least 2", conflicts)
	}
	if got := a.row().tokens["tpm"]; got != 6_250 || a.left()[tpm] != 6_250 {
		t.Errorf("the item has %d tokens, and %d remain, want exactly 6,250", got, a.left()[tpm])
	}
}

// req: A9
func cleanUp(t *testing.T, c *cloud, prefix string) {
	t.Helper()
	a, b := c.instance(t, prefix), c.instance(t, prefix)
	a.must(3_750)
	old := a.row()
	time.Sleep(time.Until(old.ttl) + time.Second)
	// The service has not come to it yet: the item is still there.
	if r := a.row(); r == nil || r.writes != old.writes {
		t.Fatal("the item is gone")
	}
	if left := b.left(); left != [3]int64{5, 250_000, 24} {
		t.Errorf("%v remain of an expired bucket", left)
	}
	b.must(3_750)
	if r := a.row(); r.tokens["tpm"] != 246_250 || time.Until(r.ttl) < 7*24*time.Hour {
		t.Errorf("the new bucket has %v and lives until %v", r.tokens, r.ttl.UTC())
	}
	// It is the TTL that makes it absent: units that still count are forgotten when it is over.
	_, err := c.admin.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{
		TableName: aws.String(quotas), Key: a.key(), UpdateExpression: aws.String("SET #ttl = :over"),
		ExpressionAttributeNames:  map[string]string{"#ttl": dynamostore.TTLAttribute},
		ExpressionAttributeValues: map[string]types.AttributeValue{":over": &types.AttributeValueMemberN{Value: "1"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if left := a.left(); left != [3]int64{5, 250_000, 24} {
		t.Errorf("%v remain of an item whose TTL is over", left)
	}
	// The service deletes it, and the next use makes a bucket of its own.
	before := a.row().bucket
	if _, err := c.admin.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{
		TableName: aws.String(quotas),
		Key:       a.key(),
	}); err != nil {
		t.Fatal(err)
	}
	b.must(1_000) // which knows the old item
	if r := a.row(); r == nil || r.bucket == before || r.writes != 1 || r.tokens["tpm"] != 249_000 {
		t.Errorf("the new bucket is %+v", r)
	}
}
