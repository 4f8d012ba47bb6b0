package cloudwatch

import (
	"io"
	"math"
	"strconv"
	"time"
)

// Bounds of the lines. AWS takes 100 values of a metric, 100 metrics of a directive, and a line of
// 1 MB; older agents 256 KB. A line here has at most ten metrics, and so a few kilobytes.
//
// Source: "Specification: Embedded metric format" in the user guide of Amazon CloudWatch.
const (
	maxValues = 100
	maxLines  = 10 // of one group: beyond maxLines*maxValues values some are left out
)

// emf writes reports in the embedded metric format. One goroutine at a time uses it.
type emf struct {
	to        io.Writer
	namespace string
	line      []byte
	broken    bool // the last line was written in part
}

// write writes all groups, each in a line, or in several if it has distributions of more values
// than a line can have. lost is how many data points were not written, err why.
func (e *emf) write(groups []group, at time.Time) (lost int, err error) {
	for i := range groups {
		for _, points := range lines(groups[i].points) {
			e.format(&groups[i], points, at)
			if failed := e.flush(); failed != nil {
				lost, err = lost+len(points), failed
			}
		}
	}
	return lost, err
}

// sampled is a metric's values in one line.
type sampled struct {
	metric string
	values []float64
	counts []float64 // how often each occurred; nil: once
}

// lines divides the values of a group's metrics among lines. Metrics with counts have lines of
// their own: see [point.counted].
func lines(points []point) (list [][]sampled) {
	var counted [][]sampled
	for i := range points {
		if p := &points[i]; p.counted() {
			values, counts := p.spread.values(maxValues)
			counted = append(counted, []sampled{{p.metric, values, counts}})
			continue
		}
		values := points[i].values()
		for k := 0; k*maxValues < len(values); k++ {
			if k == len(list) {
				list = append(list, nil)
			}
			list[k] = append(list[k], sampled{
				metric: points[i].metric,
				values: values[k*maxValues : min((k+1)*maxValues, len(values))],
			})
		}
	}
	return append(list, counted...)
}

// counted reports whether a metric is written as values with counts: retries, whose sum matters, if
// there are more than can be written one by one. AWS's own exporters write distributions like this
// (awsemfexporter of OpenTelemetry's collector, aws-embedded-metrics-java), but its specification
// does not have it, so nothing else is written so.
func (p *point) counted() bool { return p.metric == StoreRetries && p.spread.n > maxLines*maxValues }

// values returns what the specification allows to say of a point: it has neither counts nor sets of
// statistics.
func (p *point) values() []float64 {
	switch {
	case p.spread != nil:
		return p.spread.samples(maxLines * maxValues)
	case p.metric == TokensAvailable:
		return p.level.samples(maxValues)
	}
	return []float64{p.total}
}

// format makes a line.
func (e *emf) format(g *group, points []sampled, at time.Time) {
	b := e.line[:0]
	if e.broken {
		b = append(b, '\n') // else this line would be a part of the last one
	}
	b = append(b, `{"_aws":{"Timestamp":`...)
	b = strconv.AppendInt(b, at.UnixMilli(), 10)
	b = append(b, `,"CloudWatchMetrics":[{"Namespace":`...)
	b = appendText(b, e.namespace)
	if g.policy == "" {
		b = append(b, `,"Dimensions":[[]],"Metrics":[`...)
	} else {
		b = append(b, `,"Dimensions":[["BucketType","Policy"],["BucketType"]],"Metrics":[`...)
	}
	for i := range points {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"Name":`...)
		b = appendText(b, points[i].metric)
		b = append(b, `,"Unit":`...)
		b = appendText(b, string(unitOf(points[i].metric)))
		b = append(b, '}')
	}
	b = append(b, `]}]}`...)
	if g.policy != "" {
		b = append(b, `,"BucketType":`...)
		b = appendText(b, g.bucketType)
		b = append(b, `,"Policy":`...)
		b = appendText(b, g.policy)
	}
	for i := range points {
		b = append(b, ',')
		b = appendText(b, points[i].metric)
		b = append(b, ':')
		if points[i].counts != nil {
			b = appendCounted(b, &points[i])
		} else {
			b = appendValues(b, points[i].values)
		}
	}
	b = append(b, '}', '\n')
	e.line = b
}

// flush writes the line.
func (e *emf) flush() error {
	n, err := e.to.Write(e.line)
	if err == nil && n < len(e.line) {
		err = io.ErrShortWrite
	}
	if n > 0 {
		e.broken = n < len(e.line)
	}
	return err
}

// appendText appends a string of printable ASCII.
func appendText(b []byte, s string) []byte {
	b = append(b, '"')
	for i := range len(s) {
		if s[i] == '"' || s[i] == '\\' {
			b = append(b, '\\')
		}
		b = append(b, s[i])
	}
	return append(b, '"')
}

func appendValues(b []byte, values []float64) []byte {
	if len(values) == 1 {
		return appendNumber(b, values[0])
	}
	return appendList(b, values)
}

// appendCounted appends values in rising order with their counts and statistics.
func appendCounted(b []byte, s *sampled) []byte {
	n, sum := 0.0, 0.0
	for i, v := range s.values {
		n, sum = n+s.counts[i], sum+v*s.counts[i]
	}
	b = appendList(append(b, `{"Values":`...), s.values)
	b = appendList(append(b, `,"Counts":`...), s.counts)
	b = appendNumber(append(b, `,"Min":`...), s.values[0])
	b = appendNumber(append(b, `,"Max":`...), s.values[len(s.values)-1])
	b = appendNumber(append(b, `,"Count":`...), n)
	b = appendNumber(append(b, `,"Sum":`...), sum)
	return append(b, '}')
}

func appendList(b []byte, values []float64) []byte {
	b = append(b, '[')
	for i, v := range values {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendNumber(b, v)
	}
	return append(b, ']')
}

// appendNumber appends a number as short as it can be, whole ones in full.
func appendNumber(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}
