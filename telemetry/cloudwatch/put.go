package cloudwatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"
)

// Putter is the part of CloudWatch's client that is used.
type Putter interface {
	PutMetricData(ctx context.Context, in *sdk.PutMetricDataInput, options ...func(*sdk.Options)) (*sdk.PutMetricDataOutput, error)
}

var _ Putter = (*sdk.Client)(nil)

// Bounds of the requests.
const (
	maxData    = 1000      // of a request, says AWS
	maxRequest = 1_000_000 // bytes, says AWS
	maxPending = 256       // requests that wait: a report of 1,000 policies fits, and they take some 50 MB at most
	sendTime   = 30 * time.Second
)

var (
	errFull   = errors.New("cloudwatch: too many requests wait to be sent")
	errClosed = errors.New("cloudwatch: closed")
)

// sender sends requests, one after the other.
type sender struct {
	to        Putter
	namespace string
	lost      func(n int, err error)
	end       context.CancelFunc // ends the request under way, and all others
	done      chan struct{}      // closed when everything was sent or dropped

	mu     sync.Mutex
	closed bool          // guarded by mu
	queue  chan *request // guarded by mu: against a write after it was closed
	last   *request      // guarded by mu: the last one in the queue or under way; nil: there is none
}

type request struct {
	data []types.MetricDatum
	done chan struct{} // closed when it was sent or dropped
	err  error         // why it was dropped; set before done is closed
}

func newRequest(data []types.MetricDatum) *request {
	return &request{data: data, done: make(chan struct{})}
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

func newSender(to Putter, namespace string, lost func(n int, err error)) *sender {
	ctx, end := context.WithCancel(context.Background())
	s := &sender{to: to, namespace: namespace, lost: lost, end: end, done: make(chan struct{}), queue: make(chan *request, maxPending)}
	go s.run(ctx)
	return s
}

func (s *sender) run(ctx context.Context) {
	defer close(s.done)
	for r := range s.queue {
		err := s.send(ctx, r.data)
		if err != nil {
			s.lost(len(r.data), err)
		}
		s.mu.Lock()
		if s.last == r {
			s.last = nil
		}
		s.mu.Unlock()
		r.finish(err)
	}
}

// send sends one request. The client tries it several times.
func (s *sender) send(ctx context.Context, data []types.MetricDatum) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	_, err := s.to.PutMetricData(ctx, &sdk.PutMetricDataInput{Namespace: &s.namespace, MetricData: data})
	if e, ok := errors.AsType[smithy.APIError](err); ok { // its message may repeat what was signed
		return fmt.Errorf("cloudwatch: %d data points could not be sent: CloudWatch answered %s", len(data), e.ErrorCode())
	}
	if err != nil {
		return fmt.Errorf("cloudwatch: %d data points could not be sent: %w", len(data), err)
	}
	return nil
}

// enqueue hands over a report. It does not wait. It returns the report's requests, and before them
// the last one of earlier reports that was not sent yet. Those that have no room are dropped, and
// are one request of what is returned.
func (s *sender) enqueue(groups []group, at time.Time) (sent []*request) {
	s.mu.Lock()
	if s.last != nil {
		sent = append(sent, s.last)
	}
	s.mu.Unlock()
	list := requests(groups, at)
	for i, data := range list {
		r := newRequest(data)
		sent = append(sent, r)
		if err := s.offer(r); err != nil {
			n := 0
			for _, data := range list[i:] {
				n += len(data)
			}
			s.lost(n, err)
			r.finish(fmt.Errorf("%w: %d data points are dropped", err, n))
			return sent
		}
	}
	return sent
}

// offer puts a request in the queue if there is room.
func (s *sender) offer(r *request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	select {
	case s.queue <- r:
		s.last = r
		return nil
	default:
		return errFull
	}
}

// close sends what waits, until ctx ends: then it drops the rest.
func (s *sender) close(ctx context.Context) (err error) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.queue)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.end()
	<-s.done
	return err
}

// requests divides a report into requests that AWS accepts.
func requests(groups []group, at time.Time) (list [][]types.MetricDatum) {
	size := maxRequest
	for i := range groups {
		for _, dimensions := range groups[i].dimensions() {
			for k := range groups[i].points {
				d := datum(&groups[i].points[k], dimensions, at)
				n := sizeOf(&d)
				if size += n; size > maxRequest || len(list[len(list)-1]) == maxData {
					list, size = append(list, nil), n
				}
				list[len(list)-1] = append(list[len(list)-1], d)
			}
		}
	}
	return list
}

// dimensions returns the sets of dimensions that a group is sent under.
func (g *group) dimensions() [][]types.Dimension {
	if g.policy == "" {
		return [][]types.Dimension{nil}
	}
	byType := types.Dimension{Name: aws.String(dimensionType), Value: &g.bucketType}
	return [][]types.Dimension{{byType, {Name: aws.String(dimensionPolicy), Value: &g.policy}}, {byType}}
}

// datum returns a point as PutMetricData takes it.
func datum(p *point, dimensions []types.Dimension, at time.Time) types.MetricDatum {
	d := types.MetricDatum{MetricName: &p.metric, Dimensions: dimensions, Timestamp: &at, Unit: unitOf(p.metric)}
	switch {
	case p.spread != nil:
		d.Values, d.Counts = p.spread.values(maxValues)
	case p.level != nil && p.level.n > 0:
		d.StatisticValues = &types.StatisticSet{
			SampleCount: aws.Float64(float64(p.level.n)), Sum: &p.level.sum, Minimum: &p.level.min, Maximum: &p.level.max,
		}
	default:
		d.Value = &p.total
	}
	return d
}

// sizeOf estimates the bytes of a datum in the longest of AWS's protocols, a form whose field names
// are repeated for each value.
func sizeOf(d *types.MetricDatum) int {
	const (
		rest  = 700 // names, unit, time, and up to four statistics
		value = 150 // and its count
	)
	n := rest + value*len(d.Values)
	for i := range d.Dimensions {
		n += value + 3*len(*d.Dimensions[i].Value) // each byte may be escaped
	}
	return n
}
