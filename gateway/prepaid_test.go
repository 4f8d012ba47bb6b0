package gateway_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/drawgate/drawgate"
	wire "github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/credit"
	"github.com/drawgate/drawgate/internal/money"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// account is the prepaid budget of a key in the tests.
func account(key string) *credit.Account {
	return &credit.Account{Policy: "caller", Limit: "credit", Key: key}
}

func credited(t *testing.T, s drawgate.Store, key, id string, n int64) {
	t.Helper()
	if _, _, err := account(key).Give(t.Context(), s, &credit.Credit{
		ID: id, N: n, At: time.Now(), By: "ops", Reason: "a test",
	}); err != nil {
		t.Fatal(err)
	}
}

// TestPrepaidBudget: a call that a prepaid budget does not grant is refused at once, as SDKs know
// it from a budget that is used up, and without a time at which to come back. Once enough was
// credited it passes, and GET /v1/me says what was credited, used and left.
//
// req: B12
func TestPrepaidBudget(t *testing.T) {
	t.Parallel()
	budget := drawgate.CalendarLimit("credit", 0, drawgate.Total, "").Of("usd_micros")
	inBubble(t, limitedTo(budget, true), func(t *testing.T, b *bench) {
		ask := func(longest int) reply {
			body := strings.Replace(fmt.Sprintf(apis["openai"].body, "Hello!\nsimulate: output=100", ""), "200",
				fmt.Sprint(longest), 1)
			return b.do(b.raw(t.Context(), http.MethodPost, "/openai"+apis["openai"].path, body,
				apis["openai"].key+alice))
		}
		refused := func(longest int, says ...string) {
			t.Helper()
			began := time.Now()
			got := ask(longest)
			if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "" ||
				got.header.Get("X-Should-Retry") != "false" {
				t.Errorf("got %d %v %s", got.status, got.header, got.body)
			}
			for _, text := range says {
				if !strings.Contains(got.body, text) {
					t.Errorf("the refusal does not say %q: %s", text, got.body)
				}
			}
			if waited := time.Since(began); waited > time.Second {
				t.Errorf("refused after %v", waited)
			}
		}
		refused(100, `"drawgate: rate limit exceeded: limit \"credit\" of policy \"caller\" has 0 usd left, and gets more only if that is credited`,
			`"type":"insufficient_quota"`, `"code":"insufficient_quota"`)
		credited(t, b.store, "alice", "1", 10_000)
		time.Sleep(6 * time.Second)
		if got := ask(100); got.status != http.StatusOK {
			t.Fatalf("got %d %s", got.status, got.body)
		}
		used := b.used("caller", "alice")["credit"]
		refused(5000, "has "+money.Text(10_000-used, "usd_micros")+" left", "; with max_tokens of at most ",
			" the call would fit now")
		var me wire.MeAnswer
		got := b.do(b.raw(t.Context(), http.MethodGet, wire.PathMe, "", apis["openai"].key+alice))
		if err := json.Unmarshal([]byte(got.body), &me); err != nil {
			t.Fatal(err)
		}
		if l := me.Limits[0]; l.Name != "credit" || l.Most != 10_000 || l.Used != used || l.Remaining != 10_000-used ||
			l.Every != "total" || l.ResetAt != nil || strings.Contains(got.body, "reset_at") || l.WindowEnd != nil {
			t.Errorf("got %+v", l)
		}
		credited(t, b.store, "alice", "2", 200_000)
		time.Sleep(40 * 24 * time.Hour)
		if got := ask(5000); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if got := b.call("openai", false, "Hello!", "Authorization: Bearer "+bob,
			gateway.HeaderTimeout+": 0"); got.status != http.StatusTooManyRequests {
			t.Errorf("another key: got %d %s", got.status, got.body)
		}
	})
}

// TestPrepaidBudgetThatCallsHold: while calls under way hold a prepaid budget, and may use less of
// it, others are told to come back, and not that it is used up.
//
// req: B12
func TestPrepaidBudgetThatCallsHold(t *testing.T) {
	t.Parallel()
	budget := drawgate.CalendarLimit("credit", 120_000, drawgate.Total, "").Of("usd_micros")
	inBubble(t, limitedTo(budget, true), func(t *testing.T, b *bench) {
		ask := func(text, more string, headers ...string) reply {
			body := strings.Replace(fmt.Sprintf(apis["openai"].body, text, more), "200", "5000", 1)
			return b.do(b.raw(t.Context(), http.MethodPost, "/openai"+apis["openai"].path, body,
				append(headers, apis["openai"].key+alice)...))
		}
		var first sync.WaitGroup
		first.Go(func() { ask("Hello!\nsimulate: output=10 chunk=1s", `,"stream":true`) })
		time.Sleep(time.Second) // it runs, and holds nearly all
		for _, wait := range []string{"0", "100ms"} {
			got := ask("Hello!", "", gateway.HeaderTimeout+": "+wait)
			if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") != "1" ||
				strings.Contains(got.body, "insufficient_quota") ||
				!strings.Contains(got.body, "gets more only if open reservations use less than they hold, or that is credited") {
				t.Errorf("within %s: got %d %v %s", wait, got.status, got.header, got.body)
			}
		}
		first.Wait()
		if got := ask("Hello!", ""); got.status != http.StatusOK {
			t.Errorf("got %d %s", got.status, got.body)
		}
	})
}

// prepaidProcess is a process that counts by a prepaid budget.
func prepaidProcess(t *testing.T, st drawgate.Store) (*engine.Engine, drawgate.Store) {
	t.Helper()
	g := guard.New(st, &guard.Options{Instances: 3, Timeout: 30 * time.Second})
	budget := drawgate.CalendarLimit("credit", 0, drawgate.Total, "").Of("usd_micros")
	e, err := engine.New(g.Full(), engine.Config{Policies: []engine.Policy{{
		Policy: drawgate.Policy{Name: "caller", Limits: []drawgate.Limit{budget}, Fallback: drawgate.FallbackOpen},
	}}}, &engine.Options{StoreTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Close()
		g.Close()
		st.Close()
	})
	return e, g.Full()
}

// TestPrepaidOnEachStore: three processes hold and settle, while credits come in, each sent by all
// of them at once. Nothing is spent that was not credited before; and processes that start later
// can spend the rest, to the last unit.
func TestPrepaidOnEachStore(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, open func() drawgate.Store, calls int) {
		var engines []*engine.Engine
		var stores []drawgate.Store
		for range 3 {
			e, st := prepaidProcess(t, open())
			engines, stores = append(engines, e), append(stores, st)
		}
		var sent, spent atomic.Int64
		spend := func(e *engine.Engine, n, used int64) {
			res, err := e.Take(t.Context(), &engine.Request{Hold: time.Minute, Asks: []engine.Ask{{
				Policy: "caller", Key: "alice", Costs: []drawgate.Cost{drawgate.Units("usd_micros", n)},
			}}})
			if err != nil {
				t.Error(err)
			}
			if !res.Decision.Allowed {
				return
			}
			if now := spent.Add(used); now > sent.Load() {
				t.Errorf("%d are spent of %d", now, sent.Load())
			}
			if err := res.Settle(t.Context(), drawgate.Units("usd_micros", used)); err != nil {
				t.Error(err)
			}
		}
		var callers sync.WaitGroup
		for i, e := range engines {
			callers.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), 7))
				for range calls {
					n := 1 + rng.Int64N(50)
					spend(e, n, rng.Int64N(n+1))
				}
			})
		}
		const credits = 5
		for i := range credits {
			n := int64(100 + i)
			sent.Add(n)
			var senders sync.WaitGroup
			for _, st := range stores {
				senders.Go(func() { credited(t, st, "alice", fmt.Sprint("credit ", i), n) })
			}
			senders.Wait()
		}
		callers.Wait()
		e, st := prepaidProcess(t, open())
		spend(e, sent.Load()-spent.Load()+1, 0)
		if rest := sent.Load() - spent.Load(); rest > 0 {
			spend(e, rest, rest)
		}
		if spent.Load() != sent.Load() {
			t.Errorf("%d were spent of %d", spent.Load(), sent.Load())
		}
		list, sum, err := account("alice").List(t.Context(), st)
		if err != nil || sum != sent.Load() || len(list) != credits {
			t.Errorf("%d were credited, listed are %d and %v, %v", sent.Load(), sum, list, err)
		}
		for _, c := range list {
			if c.By != "ops" || c.Reason != "a test" || !strings.HasPrefix(c.ID, "credit ") {
				t.Errorf("got %+v", c)
			}
		}
	}
	calls := needs.Rounds(50, 200, 5000)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "state.db")
		run(t, func() drawgate.Store {
			st, err := sqlitestore.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}, calls)
	})
	t.Run("dynamodb", func(t *testing.T) {
		t.Parallel()
		c := dynamodb.New(dynamodb.Options{
			BaseEndpoint: aws.String(awstest.Dynalite(t).URL), Region: "local",
			Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
		})
		if _, _, err := dynamostore.CreateTable(t.Context(), c, "drawgate", nil); err != nil {
			t.Fatal(err)
		}
		run(t, func() drawgate.Store { return dynamostore.New(c, "drawgate", nil) }, calls/5)
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t)
		run(t, func() drawgate.Store {
			st, err := redisstore.Open(server.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}, calls)
	})
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		url := redistest.StartCluster(t, false).URL()
		run(t, func() drawgate.Store {
			st, err := redisstore.Open(url, nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		}, calls)
	})
}
