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
}

// lines divides the values of a group's metrics among lines.
func lines(points []point) (list [][]sampled) {
	for i := range points {
		values := points[i].values()
		for k := 0; k*maxValues < len(values); k++ {
			if k == len(list) {
				list = append(list, nil)
			}
			list[k] = append(list[k], sampled{points[i].metric, values[k*maxValues : min((k+1)*maxValues, len(values))]})
		}
	}
	return list
}

// values returns what the format can say of a point: it has no counts and no sets of statistics.
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
		b = appendValues(b, points[i].values)
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
