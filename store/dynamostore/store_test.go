package dynamostore_test

import (
	"fmt"
	"maps"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/model"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/storetest"
)

// clocked is a store whose clock a test moves.
type clocked struct {
	*dynamostore.Store
	now    *atomic.Int64 // Unix µs
	prefix string
}

var prefixes atomic.Int64

// prefix returns one that no other test uses.
func prefix() string { return fmt.Sprint("t", prefixes.Add(1)) }

// client returns a client of a server's only table.
func client(t *testing.T, server *awstest.Server) (*dynamodb.Client, string) {
	t.Helper()
	const name = "drawgate"
	c := through(server, direct)
	_, err := c.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName: aws.String(name), BillingMode: types.BillingModePayPerRequest,
		KeySchema: []types.KeySchemaElement{{
			AttributeName: aws.String(dynamostore.KeyAttribute),
			KeyType:       types.KeyTypeHash,
		}},
		AttributeDefinitions: []types.AttributeDefinition{{
			AttributeName: aws.String(dynamostore.KeyAttribute),
			AttributeType: types.ScalarAttributeTypeS,
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c, name
}

// room is how many reservations an item of 400 KB has room for at least, if each has a short id and
// one limit.
const room = 5000

// documents names the moto on which only the cases of documents run.
const documents = "moto of documents"

// leftOut returns the cases that do not run on a stand-in, with the reasons. Moto is several times
// slower than dynalite: what is the same calls on one item with other numbers is left to dynalite.
func leftOut(name string) map[string]string {
	out := map[string]string{}
	all := storetest.Cases(storetest.Harness{Advance: func(store.Store, time.Duration) {}})
	for _, c := range all {
		if ofDocuments := strings.HasPrefix(c, "documents"); ofDocuments != (name == documents) {
			out[c] = "dynalite has no transactions, and moto copies the whole table for each: they have a table of their own"
		}
	}
	if name != "moto" || long {
		return out
	}
	for _, c := range all {
		if !otherCalls.MatchString(c) || lengthy()[c] != "" {
			out[c] = "asks nothing of the server that other cases do not ask"
		}
	}
	return out
}

// otherCalls matches the cases in which several calls or items meet, items are listed or deleted,
// keys and ids have odd bytes, or a call ends early. Most races are left to dynalite: both answer
// one request after the other.
var otherCalls = regexp.MustCompile(`racing takes|many|any byte|all or nothing|tenant|list|load|another|batch|cancel|close|` +
	`side by side|oversized|replay|partly|reset|absent|renew|pause|watch|journal|ping|gone|per bucket|histor|recover|` +
	`concurrency|settle once|refusal costs`)

// lengthy returns the cases that run on dynalite without the race detector only, unless the test is
// to take long.
func lengthy() map[string]string {
	if long {
		return nil
	}
	const often, large = "asks hundreds of times, one call after the other", "writes an item of 400 KB again and again"
	return map[string]string{
		"ids used again": often, "huge numbers": often, "bucket odd rates": often, "bookings": often,
		"64 buckets": often, "never over, never idle": often,
		"bucket fractions": often, "days of a year": often, "peek": often, "many open": often, "too many open": large,
	}
}

// TestEveryCaseRuns: each case of the suite runs on a stand-in at least. Run and Cases use one
// list.
func TestEveryCaseRuns(t *testing.T) {
	t.Parallel()
	clock := func(store.Store, time.Duration) {}
	ran := map[string]int{}
	for _, name := range []string{"dynalite", "moto", documents} {
		for _, c := range storetest.Cases(storetest.Harness{Advance: clock, Without: leftOut(name)}) {
			ran[c]++
		}
	}
	all := storetest.Cases(storetest.Harness{Advance: clock})
	for _, c := range all {
		if ran[c] == 0 {
			t.Errorf("%q runs on no stand-in", c)
		}
	}
	if len(ran) != len(all) {
		t.Errorf("%d names of %d cases: some have the same", len(ran), len(all))
	}
}

// harness returns stores on one table. Their clock starts when the test does.
func harness(t *testing.T, server *awstest.Server) storetest.Harness {
	t.Helper()
	c, name := client(t, server)
	on := func(t *testing.T, now *atomic.Int64, prefix string) store.Store {
		t.Helper()
		s := dynamostore.NewWithClock(c, name, &dynamostore.Options{Prefix: prefix}, now.Load)
		t.Cleanup(func() { _ = s.Close() })
		return &clocked{s, now, prefix}
	}
	return storetest.Harness{
		New: func(t *testing.T) store.Store {
			now := &atomic.Int64{}
			now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
			return on(t, now, prefix())
		},
		Advance: func(s store.Store, d time.Duration) { s.(*clocked).now.Add(d.Microseconds()) },
		Second: func(t *testing.T, s store.Store) store.Store {
			return on(t, s.(*clocked).now, s.(*clocked).prefix)
		},
		Apart: func(t *testing.T, s store.Store) (behind, right store.Store) {
			t.Helper()
			const most = time.Second
			with := func(behind time.Duration) store.Store {
				now := s.(*clocked).now
				o := dynamostore.NewWithErrorOf(c, name, &dynamostore.Options{Prefix: s.(*clocked).prefix}, behind,
					most, now.Load)
				t.Cleanup(func() { _ = o.Close() })
				return &clocked{o, now, s.(*clocked).prefix}
			}
			return with(most), with(0)
		},
		Without: leftOut(server.Name),
		Room:    room,
		Slow:    true,
	}
}

// req: A1, A3, A8
func TestStoreOnDynalite(t *testing.T) {
	t.Parallel()
	h := harness(t, awstest.Dynalite(t))
	if needs.Race {
		maps.Copy(h.Without, lengthy()) // TestLengthyCases runs them
	}
	storetest.Run(t, h)
}

// TestLengthyCases runs what TestStoreOnDynalite leaves out under the race detector: one caller
// asks for long.
func TestLengthyCases(t *testing.T) {
	needs.NoRace(t)
	t.Parallel()
	h := harness(t, awstest.Dynalite(t))
	h.Without = map[string]string{}
	for _, c := range storetest.Cases(h) {
		if lengthy()[c] == "" {
			h.Without[c] = "TestStoreOnDynalite runs it"
		}
	}
	storetest.Run(t, h)
}

// TestContestedStore is TestStoreOnDynalite for items that have entries all the time.
func TestContestedStore(t *testing.T) {
	needs.NoRace(t) // one caller, as in TestStoreOnDynalite
	t.Parallel()
	h := contested(harness(t, awstest.Dynalite(t)))
	maps.Copy(h.Without, lengthy()) // they make the same writes more often
	storetest.Run(t, h)
}

// contested makes the stores of a harness write as if others did so at the same time.
func contested(h storetest.Harness) storetest.Harness {
	open, second, apart := h.New, h.Second, h.Apart
	h.New = func(t *testing.T) store.Store {
		s := open(t)
		s.(*clocked).Contest()
		return s
	}
	h.Second = func(t *testing.T, s store.Store) store.Store {
		o := second(t, s)
		o.(*clocked).Contest()
		return o
	}
	h.Apart = func(t *testing.T, s store.Store) (behind, right store.Store) {
		t.Helper()
		behind, right = apart(t, s)
		behind.(*clocked).Contest()
		right.(*clocked).Contest()
		return behind, right
	}
	return h
}

func TestScripts(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	type reference struct {
		*model.Records
		now *atomic.Int64
	}
	storetest.Scripts(t, harness(t, awstest.Dynalite(t)), storetest.Harness{
		New: func(*testing.T) store.Store {
			now := &atomic.Int64{}
			now.Store(time.Date(2026, 3, 28, 22, 58, 3, 0, time.UTC).UnixMicro())
			return &reference{model.NewRecords(now.Load, false), now}
		},
		Advance: func(s store.Store, d time.Duration) { s.(*reference).now.Add(d.Microseconds()) },
	}, scripts())
}

// long is set to run the long forms of the tests that have one.
var long = needs.Long()

// scripts is how many are compared.
func scripts() int {
	if long {
		return 1000
	}
	return 20
}

// req: A1, A3, A8
func TestStoreOnMoto(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	storetest.Run(t, harness(t, awstest.Moto(t)))
}
