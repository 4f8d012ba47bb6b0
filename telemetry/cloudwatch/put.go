package cloudwatch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	sdk "github.com/aws/aws-sdk-go-v2/service/cloudwatch"
	"github.com/aws/aws-sdk-go-v2/service/cloudwatch/types"
	"github.com/aws/smithy-go"

	"github.com/drawgate/drawgate/internal/outbox"
)

// Putter is the part of CloudWatch's client that is used.
type Putter interface {
	PutMetricData(ctx context.Context, in *sdk.PutMetricDataInput,
		options ...func(*sdk.Options)) (*sdk.PutMetricDataOutput, error)
}

var _ Putter = (*sdk.Client)(nil)

// Bounds of the requests.
const (
	maxData    = 1000      // of a request, says AWS
	maxRequest = 1_000_000 // bytes, says AWS
	maxPending = 256       // requests that wait: a report of 1,000 policies fits, and they take some 50 MB at most
	sendTime   = 30 * time.Second
)

// sender sends requests, one after the other.
type sender struct {
	to        Putter
	namespace string
	lost      func(n int, err error)
	box       *outbox.Outbox[[]types.MetricDatum]
}

func newSender(to Putter, namespace string, lost func(n int, err error)) *sender {
	s := &sender{to: to, namespace: namespace, lost: lost}
	s.box = outbox.New(maxPending, s.send)
	return s
}

// send sends one request. The client tries it several times.
func (s *sender) send(ctx context.Context, data []types.MetricDatum) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	_, err := s.to.PutMetricData(ctx, &sdk.PutMetricDataInput{Namespace: &s.namespace, MetricData: data})
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[smithy.APIError](err); ok { // its message may repeat what was signed
		err = errors.New("CloudWatch answered " + e.ErrorCode())
	}
	err = fmt.Errorf("cloudwatch: %d data points could not be sent: %w", len(data), err)
	s.lost(len(data), err)
	return err
}

// enqueue hands over a report. It does not wait. It returns the report's requests, and before them
// the last one of earlier reports that was not sent yet. The error is why the rest of the report is
// dropped.
func (s *sender) enqueue(groups []group, at time.Time) (sent []*outbox.Sending, err error) {
	if last := s.box.Last(); last != nil {
		sent = append(sent, last)
	}
	list := requests(groups, at)
	for i, data := range list {
		one, err := s.box.Add(data)
		if err != nil {
			n := 0
			for _, data := range list[i:] {
				n += len(data)
			}
			err = fmt.Errorf("cloudwatch: %d data points are dropped: %w", n, err)
			s.lost(n, err)
			return sent, err
		}
		sent = append(sent, one)
	}
	return sent, nil
}

// close sends what waits, until ctx ends: then it drops the rest.
func (s *sender) close(ctx context.Context) error {
	if _, late := s.box.Close(ctx); late > 0 {
		return ctx.Err()
	}
	return nil
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
			SampleCount: aws.Float64(float64(p.level.n)), Sum: &p.level.sum, Minimum: &p.level.min,
			Maximum: &p.level.max,
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
