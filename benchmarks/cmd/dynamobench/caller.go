package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/benchmarks/internal/drive"
	"github.com/drawgate/drawgate/benchmarks/lim"
	"github.com/drawgate/drawgate/store/dynamostore"
)

// report is what callers say after each time. Those of zae-limiter (callers.py) say the same.
type report struct {
	Seconds float64        `json:"seconds"` // until the last call was answered
	Granted int            `json:"granted"`
	Failed  int            `json:"failed"`
	Errors  map[string]int `json:"errors"` // some of them
	Micros  []int64        `json:"us"`     // of each call
}

// far is a limit that no run reaches.
const far = 100_000_000

// kinds are the limits, by name.
var kinds = map[string][]drawgate.Limit{
	"bucket":   {drawgate.BucketLimit("rpm", far, time.Minute, far)},
	"calendar": {drawgate.CalendarLimit("rpd", far, drawgate.Day, "")},
	"rolling":  {drawgate.RollingLimit("rpm", far, time.Minute)},
	"three": {
		drawgate.RollingLimit("rpm", far, time.Minute), drawgate.RollingLimit("tpm", 100*far, time.Minute).Of("tokens"),
		drawgate.CalendarLimit("rpd", far, drawgate.Day, ""),
	},
}

// taker takes from one key.
func taker(s drawgate.Store, kind string) (func(ctx context.Context, key string) (bool, error), error) {
	l, err := drawgate.New(s, drawgate.Policy{Name: kind, Limits: kinds[kind]}, &drawgate.Options{StoreTimeout: -1})
	if err != nil {
		return nil, err
	}
	costs := []drawgate.Cost{drawgate.Requests(1)}
	if kind == "three" {
		costs = append(costs, drawgate.Tokens(100))
	}
	return func(ctx context.Context, key string) (bool, error) {
		d, err := l.Allow(ctx, key, costs...)
		return d.Allowed, err
	}, nil
}

// floor is the least that a limiter has to do: one conditional update for each take.
func floor(ctx context.Context) (func(ctx context.Context, key string) (bool, error), error) {
	l, err := dynamostore.ParseURL(*st)
	if err != nil {
		return nil, err
	}
	c, err := dynamostore.Client(ctx, l)
	if err != nil {
		return nil, err
	}
	update, condition := "ADD n :one", "attribute_not_exists(n) OR n < :most"
	return func(ctx context.Context, key string) (bool, error) {
		_, err := c.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: &l.Table,
			Key: map[string]types.AttributeValue{
				dynamostore.KeyAttribute: &types.AttributeValueMemberS{Value: key},
			},
			UpdateExpression: &update, ConditionExpression: &condition,
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":one":  &types.AttributeValueMemberN{Value: "1"},
				":most": &types.AttributeValueMemberN{Value: strconv.Itoa(far)},
			},
		})
		return err == nil, err
	}, nil
}

// serveCalls calls as long as each line of the input says, in seconds.
func serveCalls() error {
	ctx := context.Background()
	var take func(ctx context.Context, key string) (bool, error)
	var err error
	if *call == "floor" {
		take, err = floor(ctx)
	} else {
		var s *dynamostore.Store
		if s, err = dynamostore.Open(ctx, *st, nil); err != nil {
			return err
		}
		take, err = taker(s, *call)
	}
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var us []int64
	decide := func(ctx context.Context, _ *lim.Rand) (bool, error) {
		began := time.Now()
		ok, err := take(ctx, "k")
		mu.Lock()
		defer mu.Unlock()
		us = append(us, time.Since(began).Microseconds())
		return ok, err
	}
	if _, err := take(ctx, "k"); err != nil { // makes the item
		return err
	}
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		seconds, err := strconv.ParseFloat(in.Text(), 64)
		if err != nil {
			return err
		}
		us = []int64{}
		r := drive.Closed(*callers, time.Duration(seconds*float64(time.Second)), decide)
		got := report{r.Wall.Seconds(), int(r.Allowed), int(r.Errs), map[string]int{}, us}
		if r.Errs > 0 {
			got.Errors[r.Note()] = int(r.Errs)
		}
		if err := json.NewEncoder(os.Stdout).Encode(got); err != nil {
			return err
		}
	}
	return nil
}
