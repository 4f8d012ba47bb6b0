package gateway_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/google/go-cmp/cmp"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/gateway"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/guard"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// biller is a provider that answers each call with a usage that its prompt determines, and writes a
// bill by whom the prompt names.
type biller struct {
	prices *llm.Prices
	takes  time.Duration // a call; then the bill has the days on which calls came
	mu     sync.Mutex
	bill   map[spend.Meter]spend.Units // guarded by mu
}

// RoundTrip implements http.RoundTripper.
func (b *biller) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	_, who, _ := strings.Cut(string(body), "for ")
	who, _, _ = strings.Cut(who, ".")
	parts := strings.Split(who, ",") // team, key, model, number
	h := fnv.New32a()
	_, _ = h.Write([]byte(who))
	in, out := int64(1+h.Sum32()%900), int64(1+h.Sum32()/1000%100)
	price := b.prices.Models[parts[2]]
	micros := (in*price.Input + out*price.Output + 999_999) / 1_000_000
	m := spend.Meter{Team: parts[0], Key: parts[1], Upstream: "openai", Model: parts[2]}
	if b.takes > 0 {
		m.Day = time.Now().UTC().Format(time.DateOnly)
		time.Sleep(b.takes)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.bill[m]
	u.Requests, u.PromptTokens, u.AnswerTokens, u.Micros = u.Requests+1, u.PromptTokens+in, u.AnswerTokens+out,
		u.Micros+micros
	b.bill[m] = u
	text := fmt.Sprintf(`{"choices":[{"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],`+
		`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"total_tokens":%d}}`, in, out, in+out)
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader([]byte(text))), ContentLength: int64(len(text)),
	}, nil
}

// spenders are gateways on one store, as processes of their own would be.
type spenders struct {
	*testing.T
	biller   *biller
	gateways []*bench
	guards   []*guard.Store
	teams    int
	models   []string
	callers  int // at once
}

// newSpenders returns gateways, each with a store that open opens, and that has so long to answer.
// A charge whose answer comes too late is sent again, and may count twice.
func newSpenders(t *testing.T, gateways, teams int, timeout time.Duration, open func() drawgate.Store) *spenders {
	t.Helper()
	s := &spenders{T: t, teams: teams, callers: 16, biller: &biller{
		prices: priced(),
		bill:   map[spend.Meter]spend.Units{},
	}}
	s.models = []string{"gpt-4o", "gpt-4o-mini"}
	for range gateways {
		g := guard.New(open(), &guard.Options{Instances: gateways, Timeout: timeout})
		s.guards = append(s.guards, g)
		set := newSetup(func(set *setup) {
			set.store, set.config.Prices, set.config.Keys = g.Full(), s.biller.prices, nil
			if timeout >= time.Minute { // nothing falls out here: a slow machine is no outage
				set.storeTimeout = 2 * timeout
			}
			for i := range teams {
				set.config.Keys = append(set.config.Keys, gateway.Key{
					Name: fmt.Sprint("key", i), Team: fmt.Sprint("team", i%(teams/2+1)),
					Sum: sha256.Sum256([]byte(secretOfKey(i))),
				})
			}
			all := generous()
			all.Fallback = drawgate.FallbackOpen
			set.policies = []drawgate.Policy{all}
			set.options.Base = s.biller
		})
		b := &bench{T: t}
		b.build(set, "http://provider.test")
		s.gateways = append(s.gateways, b)
	}
	return s
}

func secretOfKey(i int) string { return fmt.Sprintf("vk-key-%d-0123456789", i) }

// calls makes calls by any keys through any gateways.
func (s *spenders) calls(n int) {
	s.Helper()
	var all sync.WaitGroup
	for c := range s.callers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(c), 3))
			for i := range n / s.callers {
				key, model := rng.IntN(s.teams), s.models[rng.IntN(len(s.models))]
				who := fmt.Sprintf("team%d,key%d,%s,%d-%d-%d", key%(s.teams/2+1), key, model, c, i, rng.IntN(1e9))
				b := s.gateways[rng.IntN(len(s.gateways))]
				body := fmt.Sprintf(`{"model":%q,"max_tokens":200,"messages":[{"role":"user","content":"for %s."}]}`, model, who)
				began := time.Now()
				got := b.do(b.raw(s.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
					"Authorization: Bearer "+secretOfKey(key)))
				if got.status != http.StatusOK {
					s.Errorf("after %v: %d %s", time.Since(began), got.status, got.body)
				}
			}
		})
	}
	all.Wait()
}

// judge compares what was counted with the bill, once everything is delivered.
func (s *spenders) judge() {
	s.Helper()
	b := s.gateways[0]
	b.until("everything is delivered", func() bool {
		for i, g := range s.guards {
			if st := g.State(); st.Unavailable || st.Pending > 0 || s.gateways[i].h.UnderWay() > 0 {
				return false
			}
		}
		return true
	})
	now := time.Now().UTC()
	began := time.Now()
	rows, err := spend.Read(s.Context(), b.store, b.money, now.AddDate(0, 0, -1), now, "")
	took := time.Since(began)
	if err != nil {
		s.Fatal(err)
	}
	got := map[spend.Meter]spend.Units{}
	for _, r := range spend.Sum(rows, func(m *spend.Meter) { m.Day = "" }) {
		if got[r.Meter] = r.Used; r.Open != (spend.Units{}) {
			s.Errorf("%+v is open", r)
		}
	}
	if diff := cmp.Diff(s.biller.bill, got); diff != "" {
		s.Errorf("-bill +store:\n%s", diff)
	}
	s.Logf("%d meters, read in %v", len(rows), took)
}

// TestSpendIsTheBill: what gateways on one store count is what the provider bills, for each key and
// model, to the millionth: also if the store stands still, so that calls are let through without
// it, if it is killed and started again, and if connections break.
func TestSpendIsTheBill(t *testing.T) {
	t.Parallel()
	gateways, teams, calls := needs.Rounds(2, 3, 8), needs.Rounds(6, 10, 40), needs.Rounds(200, 1500, 200_000)
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "state.db")
		s := newSpenders(t, gateways, teams, time.Minute, func() drawgate.Store {
			st, err := sqlitestore.Open(path, nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		})
		s.calls(calls)
		s.judge()
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
		s := newSpenders(t, gateways, teams, time.Minute,
			func() drawgate.Store { return dynamostore.New(c, "drawgate", nil) })
		s.callers = 2 // each call writes several items, and those who write the same ones wait for each other
		s.calls(min(calls/10, 5000))
		s.judge()
	})
	t.Run("redis", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
		s := newSpenders(t, gateways, teams, 3*time.Second, func() drawgate.Store {
			st, err := redisstore.Open(server.URL(), nil)
			if err != nil {
				t.Fatal(err)
			}
			return st
		})
		s.calls(calls / 4)
		done := make(chan struct{})
		go func() {
			defer close(done)
			s.calls(calls / 2)
		}()
		server.Stop()
		s.gateways[0].until("a gateway goes on without the store", func() bool {
			return slices.ContainsFunc(s.guards, func(g *guard.Store) bool { return g.State().Unavailable })
		})
		server.Continue()
		server.Kill9()
		server.Restart()
		<-done
		s.calls(calls / 4)
		s.judge()
	})
}

// TestSpendAtMonthsEdge: calls that begin before, at and after the end of a month, and end after
// it, are of the day on which they began: in the bill, in the ledger, and in what was counted.
func TestSpendAtMonthsEdge(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(path string) (drawgate.Store, error){
		"memory": func(string) (drawgate.Store, error) { return memstore.New(nil), nil },
		"sqlite": func(path string) (drawgate.Store, error) { return sqlitestore.Open(path, nil) },
	} {
		dir := t.TempDir()
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC)) - 2*time.Second)
				provider := &biller{prices: priced(), takes: 3 * time.Second, bill: map[spend.Meter]spend.Units{}}
				set := newSetup(func(s *setup) {
					s.ledger, s.config.Prices, s.options.Base = dir, provider.prices, provider
					var err error
					if s.store, err = open(filepath.Join(dir, "state.db")); err != nil {
						t.Fatal(err)
					}
				})
				b := &bench{T: t}
				b.build(set, "http://provider.test")
				b.callsOverMonthsEdge()
				if diff := cmp.Diff(provider.bill, b.spent()); diff != "" {
					t.Errorf("-bill +store:\n%s", diff)
				}
				rows, reported := b.countedTwice(dir)
				if diff, _ := spend.Compare(rows, reported, b.money); len(diff) > 0 || reported.Calls != 40 {
					t.Errorf("the ledger has %d calls, and differs: %+v", reported.Calls, diff)
				}
				if len(rows) != 8 || rows[3].Day != "2000-01-31" || rows[4].Day != "2000-02-01" {
					t.Errorf("%+v, want four meters of each month", rows)
				}
			})
		})
	}
}

// callsOverMonthsEdge makes a call each tenth of a second for four seconds, in the middle of which
// a month ends.
func (b *bench) callsOverMonthsEdge() {
	b.Helper()
	var calls sync.WaitGroup
	for i := range 40 {
		key, model := b.conf.Keys[i%2], []string{"gpt-4o", "gpt-4o-mini"}[i/2%2]
		body := fmt.Sprintf(`{"model":%q,"max_tokens":200,"messages":[{"role":"user","content":"for %s,%s,%s,%d."}]}`,
			model, key.Team, key.Name, model, i)
		calls.Go(func() {
			if got := b.do(b.raw(b.Context(), http.MethodPost, "/openai/v1/chat/completions", body,
				"Authorization: Bearer "+[]string{alice, bob}[i%2])); got.status != http.StatusOK {
				b.Errorf("%d %s", got.status, got.body)
			}
		})
		time.Sleep(100 * time.Millisecond)
	}
	calls.Wait()
	b.settled()
}
