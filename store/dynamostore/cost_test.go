package dynamostore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/store"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// meter counts requests, and the capacity that they consumed.
type meter struct {
	mu                          sync.Mutex
	reads, writes               int     // guarded by mu
	readCapacity, writeCapacity float64 // guarded by mu
}

// options let a client's answers have the capacity that they consumed.
func (m *meter) options(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("meter",
			func(ctx context.Context, in middleware.InitializeInput,
				next middleware.InitializeHandler,
			) (middleware.InitializeOutput, middleware.Metadata, error) {
				switch p := in.Parameters.(type) {
				case *dynamodb.GetItemInput:
					p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
				case *dynamodb.PutItemInput:
					p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
				case *dynamodb.UpdateItemInput:
					p.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
				}
				out, meta, err := next.HandleInitialize(ctx, in)
				m.mu.Lock()
				defer m.mu.Unlock()
				switch r := out.Result.(type) {
				case *dynamodb.GetItemOutput:
					m.reads++
					if err != nil {
						return out, meta, err
					}
					m.readCapacity += *r.ConsumedCapacity.CapacityUnits
				case *dynamodb.PutItemOutput:
					m.writes++
					if err != nil { // DynamoDB charges a write whose condition failed, but does not say so
						m.writeCapacity++
						return out, meta, err
					}
					m.writeCapacity += *r.ConsumedCapacity.CapacityUnits
				case *dynamodb.UpdateItemOutput:
					m.writes++
					if err != nil {
						m.writeCapacity++
						return out, meta, err
					}
					m.writeCapacity += *r.ConsumedCapacity.CapacityUnits
				}
				return out, meta, err
			}), middleware.After)
	})
}

// cost is what something cost.
type cost struct {
	reads, writes               int
	readCapacity, writeCapacity float64
}

// take returns what was counted since the last call.
func (m *meter) take() cost {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := cost{m.reads, m.writes, m.readCapacity, m.writeCapacity}
	m.reads, m.writes, m.readCapacity, m.writeCapacity = 0, 0, 0, 0
	return c
}

// What docs/aws.md says of what a decision costs, as dynalite counts capacity.
//
// req: A1, A8
func TestCostOfADecision(t *testing.T) {
	server := awstest.Dynalite(t)
	c, name := client(t, server)
	m := &meter{}
	metered := dynamodb.New(c.Options(), m.options)
	policy := drawgate.Policy{Name: "flash", Limits: []drawgate.Limit{
		drawgate.RollingLimit("rpm", 5, time.Hour),
		drawgate.RollingLimit("tpm", 250_000, time.Hour).Of("tokens"),
		drawgate.RollingLimit("rpd", 25, 24*time.Hour),
	}}
	o := &dynamostore.Options{Prefix: prefix()}
	open := func() *drawgate.Limiter {
		s := dynamostore.NewWithError(metered, name, o, 0, 0)
		t.Cleanup(func() { _ = s.Close() })
		l, err := drawgate.New(s, policy, &drawgate.Options{StoreTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l, other := open(), open()
	step := func(what string, want cost, f func() (bool, error), granted bool) {
		t.Helper()
		m.take()
		ok, err := f()
		if err != nil || ok != granted {
			t.Fatalf("%s: granted=%v, %v", what, ok, err)
		}
		if got := m.take(); got != want {
			t.Errorf("%s cost %+v, want %+v", what, got, want)
		}
	}
	take := func(l *drawgate.Limiter) func() (bool, error) {
		return func() (bool, error) {
			d, _, err := l.Take(t.Context(), drawgate.Request{Buckets: []drawgate.Ask{{
				Key:   "k",
				Costs: []store.Cost{drawgate.Requests(1), drawgate.Tokens(1000)},
			}}})
			return d.Allowed, err
		}
	}
	step("the first take of a process", cost{1, 1, 1, 1}, take(l), true)
	step("a take by the last writer", cost{0, 1, 0, 1}, take(l), true)
	step("the first take of another process", cost{1, 1, 1, 1}, take(other), true)
	var res *drawgate.Reservation
	step("a take with a hold by the last writer", cost{0, 1, 0, 1}, func() (ok bool, err error) {
		res, err = other.Reserve(t.Context(), "k", time.Minute, drawgate.Requests(1), drawgate.Tokens(1000))
		return err == nil, err
	}, true)
	step("its settlement", cost{0, 1, 0, 1}, func() (bool, error) {
		return true,
			res.Settle(t.Context(), drawgate.Tokens(10))
	}, true)
	step("the last take that fits", cost{0, 1, 0, 1}, take(other), true)
	step("a refusal", cost{1, 0, 1, 0}, take(other), false)
	step("a status", cost{1, 0, 1, 0}, func() (bool, error) { _, err := l.Status(t.Context(), "k"); return true, err },
		true)
	// It tries a write. AWS returns the item with the failure, which saves the read.
	step("a refusal of another process, by an old image", cost{1, 1, 1, 1}, take(l), false)
}

// An item is charged by its size: 150 entries of an exact limit fit into one write unit.
func TestCostOfALargeItem(t *testing.T) {
	server := awstest.Dynalite(t)
	c, name := client(t, server)
	m := &meter{}
	s := dynamostore.NewWithError(dynamodb.New(c.Options(), m.options), name, &dynamostore.Options{Prefix: prefix()}, 0,
		0)
	t.Cleanup(func() { _ = s.Close() })
	limit := drawgate.RollingLimit("rpm", 1_000_000, 24*time.Hour)
	limit.Precision = drawgate.Exact
	l, err := drawgate.New(s, drawgate.Policy{Name: "p", Limits: []drawgate.Limit{limit}},
		&drawgate.Options{StoreTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for cost := 1.0; cost == 1 && n < 1000; n++ {
		m.take()
		if _, err := l.Allow(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		cost = m.take().writeCapacity
	}
	if t.Logf("take %d is the first one that costs more than one write unit", n); n <= 150 || n == 1000 {
		t.Errorf("take %d is the first one that costs more than one write unit, want one after 150 and before 1000", n)
	}
}

// TestSettlementsLeaveNothing: settlements of takes of several buckets leave a mark in the first
// one, which the next write drops: so that an item does not grow with each of them, and what it
// costs to write.
func TestSettlementsLeaveNothing(t *testing.T) {
	t.Parallel()
	c, name := client(t, awstest.Dynalite(t))
	m := &meter{}
	s := dynamostore.New(dynamodb.New(c.Options(), m.options), name, &dynamostore.Options{Prefix: prefix()})
	t.Cleanup(func() { _ = s.Close() })
	policy := drawgate.Policy{Name: "p", Limits: []drawgate.Limit{drawgate.CalendarLimit("rpd", 1_000_000, drawgate.Day,
		"UTC")}}
	l, err := drawgate.New(s, policy, &drawgate.Options{StoreTimeout: -1})
	if err != nil {
		t.Fatal(err)
	}
	round := func() {
		d, res, err := l.Take(t.Context(), drawgate.Request{
			Hold: drawgate.Hold{For: time.Minute},
			Buckets: []drawgate.Ask{
				{Key: "one", Costs: []store.Cost{drawgate.Requests(2)}},
				{Key: "two", Costs: []store.Cost{drawgate.Requests(2)}},
			},
		})
		if err != nil || !d.Allowed {
			t.Fatal(d.Allowed, err)
		}
		if err := res.Settle(t.Context(), drawgate.Requests(1)); err != nil {
			t.Fatal(err)
		}
	}
	for range 60 { // marks of 40 bytes each would be over 2 KB
		round()
	}
	m.take()
	round()
	if got := m.take(); got.writes != 4 || got.writeCapacity != 4 {
		t.Errorf("a take of two buckets and its settlement cost %+v, want 4 writes of one unit each", got)
	}
}
