package dynamostore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/internal/answer"
	"github.com/drawgate/drawgate/internal/record"
)

// The attributes of an item. Those that people may want to read have names that they know; what
// counts is in the record, whose checksum tells if somebody has edited it.
const (
	KeyAttribute = "bucketId" // the partition key, a string; there is no sort key
	TTLAttribute = "ttl"      // when DynamoDB may delete the item, in Unix seconds

	attrTokens = "tokens"              // what remains of each limit, by name, at the highest priority
	attrRefill = "lastRefillTimestamp" // when the item was written, in Unix ms
	attrRecord = "record"              // the bucket, see package record
	attrParts  = "keyParts"            // the key's parts, if the key does not show them
	attrWrites = "writes"              // how often the item was written
	attrLife   = "life"                // random: another item of the same key has another
	lanePrefix = "p_"                  // and a process: the instant of its last write, in µs of its own
)

const (
	lifeTime  = 7 * 24 * time.Hour // of an item in which nothing counts
	laneLife  = 30 * time.Second   // of a mark, which others drop then
	laneSure  = 20 * time.Second   // until then a mark is there, whatever the clocks of others say
	mostBytes = 390_000            // of a record: an item has at most 400 KB
)

// image is an item as it was at some instant.
type image struct {
	found  bool // there is an item, which may have expired
	record []byte
	writes int64
	life   int64
	ttl    int64            // Unix s
	lanes  map[string]int64 // by attribute
}

// readImage reads an item. No attributes mean that there is none.
func readImage(item map[string]types.AttributeValue) (*image, error) {
	img := &image{found: len(item) > 0}
	if !img.found {
		return img, nil
	}
	number := func(name string) (n int64) {
		v, ok := item[name].(*types.AttributeValueMemberN)
		if ok {
			n, ok = whole(v.Value)
		}
		if !ok {
			img.found = false
		}
		return n
	}
	img.writes, img.life, img.ttl = number(attrWrites), number(attrLife), number(TTLAttribute)
	b, ok := item[attrRecord].(*types.AttributeValueMemberB)
	if !ok || !img.found {
		return nil, fmt.Errorf("%w: an attribute is missing or of another type", errItem)
	}
	img.record = b.Value
	for name, v := range item {
		if n, isNumber := v.(*types.AttributeValueMemberN); isNumber && strings.HasPrefix(name, lanePrefix) {
			if img.lanes == nil {
				img.lanes = map[string]int64{}
			}
			img.lanes[name], _ = whole(n.Value)
		}
	}
	return img, nil
}

// whole reads a number, which a service may write as 1E+3.
func whole(text string) (int64, bool) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if n := int64(f); err == nil && float64(n) == f && n < 1<<53 && n > -1<<53 {
		return n, true
	}
	return 0, false
}

// bucket returns the record of an image at an instant. An item whose time is over counts as absent,
// whether or not the service has deleted it.
func (img *image) bucket(now int64) (*record.Record, error) {
	if !img.found || img.ttl <= now/1_000_000 {
		return &record.Record{}, nil
	}
	r, form, err := record.Decode(img.record)
	if err == nil && form != record.Whole {
		err = record.ErrDamaged
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errItem, err)
	}
	return r, nil
}

// next returns the image that a write makes of this one.
func (img *image) next(rec *record.Record, plan *drawgate.Plan, lane string, seq, now int64) *image {
	n := &image{found: true, record: record.Append(nil, rec, record.Whole), writes: img.writes + 1, life: img.life, lanes: map[string]int64{lane: seq}}
	if !img.found {
		n.writes, n.life = 1, rand.Int64N(1<<53) //nolint:gosec // it must be another one, not a secret
	}
	for name, at := range img.lanes {
		if at > now-laneLife.Microseconds() && name != lane {
			n.lanes[name] = at
		}
	}
	n.ttl = (max(lastUse(rec, n.record, plan), now)+lifeTime.Microseconds())/1_000_000 + 1
	return n
}

// lastUse returns until when something in a record may count, if nothing is taken any more.
func lastUse(rec *record.Record, encoded []byte, plan *drawgate.Plan) int64 {
	if !rec.Held() {
		return rec.Until()
	}
	last := int64(0)
	for _, o := range rec.Open {
		last = max(last, o.End)
	}
	after, _, err := record.Decode(encoded)
	if err != nil { // it was written a moment ago
		return last
	}
	after.Advance(answer.Specs(plan, false), last)
	return max(last, after.Until())
}

// item returns the attributes of an image.
func (img *image) item(key, parts string, rec *record.Record, plan *drawgate.Plan, now int64) map[string]types.AttributeValue {
	item := map[string]types.AttributeValue{
		KeyAttribute: &types.AttributeValueMemberS{Value: key},
		TTLAttribute: num(img.ttl),
		attrRecord:   &types.AttributeValueMemberB{Value: img.record},
		attrWrites:   num(img.writes),
		attrLife:     num(img.life),
		attrRefill:   num(now / 1000),
		attrTokens:   tokens(rec, plan),
	}
	if parts != "" {
		item[attrParts] = &types.AttributeValueMemberB{Value: []byte(parts)}
	}
	for name, at := range img.lanes {
		item[name] = num(at)
	}
	return item
}

func num(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// tokens returns what remains of each limit, for people who read the item.
func tokens(rec *record.Record, plan *drawgate.Plan) *types.AttributeValueMemberM {
	limits := plan.Policy().Limits
	m := make(map[string]types.AttributeValue, len(limits))
	for i, s := range answer.Specs(plan, false) {
		u := rec.Usage(&s, drawgate.MaxPriority)
		m[limits[i].Name] = num(max(0, u.Max-u.Used))
	}
	return &types.AttributeValueMemberM{Value: m}
}
