package spend_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/spend"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/memstore"
	"github.com/drawgate/drawgate/store/redisstore"
	"github.com/drawgate/drawgate/store/sqlitestore"
)

// BenchmarkReadMonth reads what 40 teams spent on five models in a month of 30 days: 6,000 meters.
func BenchmarkReadMonth(b *testing.B) {
	opened := func(b *testing.B, s drawgate.Store, err error) drawgate.Store {
		b.Helper()
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	for _, on := range []struct {
		name string
		open func(b *testing.B) drawgate.Store
	}{
		{"memory", func(*testing.B) drawgate.Store { return memstore.New(nil) }},
		{"sqlite", func(b *testing.B) drawgate.Store {
			s, err := sqlitestore.Open(filepath.Join(b.TempDir(), "state.db"), nil)
			return opened(b, s, err)
		}},
		{"redis", func(b *testing.B) drawgate.Store {
			s, err := redisstore.Open(redistest.Start(b).URL(), nil)
			return opened(b, s, err)
		}},
		{"dynamodb", func(b *testing.B) drawgate.Store {
			c := dynamodb.New(dynamodb.Options{
				BaseEndpoint: aws.String(awstest.Dynalite(b).URL), Region: "local",
				Credentials: credentials.NewStaticCredentialsProvider("test", "test", ""),
			})
			_, _, err := dynamostore.CreateTable(b.Context(), c, "drawgate", nil)
			return opened(b, dynamostore.New(c, "drawgate", nil), err)
		}},
	} {
		b.Run("store="+on.name, func(b *testing.B) { readMonth(b, on.open(b)) })
	}
}

func readMonth(b *testing.B, s drawgate.Store) {
	b.Helper()
	b.Cleanup(func() { _ = s.Close() })
	const days, teams, models = 30, 40, 5
	first := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	lim, err := drawgate.New(s, spend.Policy("usd_micros"), &drawgate.Options{StoreTimeout: 5 * time.Minute})
	if err != nil {
		b.Fatal(err)
	}
	book := spend.NewBook(s, time.UTC, nil)
	b.Cleanup(book.Close)
	for day := range days {
		var g errgroup.Group
		g.SetLimit(8)
		for i := range teams * models {
			g.Go(func() error {
				name := fmt.Sprint(i / models)
				m := book.Meter(b.Context(), spend.Meter{
					Team: "team" + name, Key: "key" + name, Upstream: "openai", Model: fmt.Sprint("model", i%models),
				}, first.AddDate(0, 0, day))
				tenant, key := m.Bucket()
				u := spend.Units{Requests: 100, PromptTokens: 100_000, AnswerTokens: 10_000, Micros: 1_234_567}
				_, _, err := lim.Take(b.Context(), drawgate.Request{
					Buckets: []drawgate.Ask{{Limiter: lim, Tenant: tenant, Key: key, Costs: costs(&u)}},
				})
				return err
			})
		}
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	best := time.Hour
	for b.Loop() {
		began := time.Now()
		rows, err := spend.Read(b.Context(), s, "usd_micros", first, first.AddDate(0, 0, days-1), "")
		if err != nil || len(rows) != days*teams*models {
			b.Fatal(len(rows), err)
		}
		best = min(best, time.Since(began))
	}
	b.ReportMetric(float64(best)/1e6, "best-ms") // on a machine that does other things as well
}
