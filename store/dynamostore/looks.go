package dynamostore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

const (
	mostLooked = 100 // buckets of one request, as DynamoDB allows
	readAtOnce = 16  // requests
)

// Peek implements [store.Store]. It reads many buckets in few requests, if that is permitted.
func (s *Store) Peek(ctx context.Context, buckets []store.BucketCost, priority int8, out []store.State) error {
	if err := s.begin(ctx, "peek"); err != nil {
		return err
	}
	defer s.calls.Done()
	var all sync.WaitGroup
	limit := make(chan struct{}, readAtOnce)
	each := func(f func()) {
		limit <- struct{}{}
		all.Go(func() {
			defer func() { <-limit }()
			f()
		})
	}
	var valid []int
	read := make([]bool, len(buckets))
	for i := range buckets {
		out[i] = store.State{}
		if out[i].Fail = buckets[i].Check(priority); out[i].Fail == nil {
			valid = append(valid, i)
		}
	}
	for some := range slices.Chunk(valid, mostLooked) {
		each(func() {
			images, at := s.readMany(ctx, buckets, some)
			for _, i := range some {
				key, _ := s.name(&buckets[i])
				if img := images[key]; img != nil {
					out[i] = s.state(&buckets[i], img, at, priority)
					read[i] = true
				}
			}
		})
	}
	all.Wait()
	for _, i := range valid {
		if !read[i] {
			each(func() { out[i] = s.peek(ctx, &buckets[i], priority) })
		}
	}
	all.Wait()
	return nil
}

func (s *Store) peek(ctx context.Context, b *store.BucketCost, priority int8) store.State {
	key, _ := s.name(b)
	rec, at, err := s.look(ctx, key)
	if err != nil {
		return store.State{Verdict: store.Verdict{Fail: failure("peek", err)}}
	}
	return s.describe(b, rec, at, priority)
}

// state describes a bucket by its item.
func (s *Store) state(b *store.BucketCost, img *image, at instant, priority int8) store.State {
	rec, err := s.bucket(img, at.early)
	if err != nil {
		return store.State{Verdict: store.Verdict{Fail: failure("peek", err)}}
	}
	return s.describe(b, rec, at, priority)
}

func (s *Store) describe(b *store.BucketCost, rec *record.Record, at instant, priority int8) store.State {
	c := *b
	c.Plan = s.variant(planKey{b.Plan, at.blur, false})
	return store.Internal.Describe(&c, rec, nil, priority, false, at.early)
}

// readMany reads the items of some buckets, consistently and in one request. Those that it does not
// return, for whatever reason, are to be read one by one.
func (s *Store) readMany(ctx context.Context, buckets []store.BucketCost, some []int) (map[string]*image, instant) {
	if len(some) < 2 || s.oneByOne.Load() {
		return nil, instant{}
	}
	asked, images := &types.KeysAndAttributes{ConsistentRead: &yes}, map[string]*image{}
	for _, i := range some {
		key, _ := s.name(&buckets[i])
		if _, twice := images[key]; !twice {
			images[key] = &image{}
			asked.Keys = append(asked.Keys, primary(key))
		}
	}
	c, began := Call{Op: "peek"}, time.Now()
	defer func() {
		c.Took = time.Since(began)
		s.called(&c)
	}()
	sent := s.clock.real()
	got, err := s.client.BatchGetItem(ctx, &dynamodb.BatchGetItemInput{
		RequestItems: map[string]types.KeysAndAttributes{s.table: *asked},
	}, plainBody)
	if c.sent(err); err == nil {
		_, err = s.heard(sent, got.ResultMetadata, nil)
	}
	at, ok := s.clock.now()
	if c.Err = err; err != nil || !ok {
		if api := smithy.APIError(nil); errors.As(err, &api) && api.ErrorCode() == "AccessDeniedException" {
			s.oneByOne.Store(true)
		}
		return nil, instant{}
	}
	for _, item := range got.Responses[s.table] {
		name, _ := item[KeyAttribute].(*types.AttributeValueMemberS)
		if name == nil {
			continue
		}
		if images[name.Value], err = readImage(item); err != nil {
			delete(images, name.Value)
		}
	}
	for _, k := range got.UnprocessedKeys[s.table].Keys {
		if name, _ := k[KeyAttribute].(*types.AttributeValueMemberS); name != nil {
			delete(images, name.Value)
		}
	}
	return images, at
}
