package dynamostore

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
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
	attrLead   = "lead"                // what the clock's width adds to the record's limits and is no use, see leads
	lanePrefix = "p_"                  // and a process: the instant of its last write, in µs of its own

	// While several processes write an item at the same time it has entries beside its record: see
	// append.go. Then it has these as well.
	attrLimits = "limits" // that the amounts of the entries belong to
	attrEpoch  = "epoch"  // raised by a write that makes what was decided before it wrong
	attrBase   = "base"   // how often entries were carried over
	attrClosed = "closed" // there: no entry may be added
	// writes that were decided before this instant, in Unix µs, are refused: marks from then are
	// gone.
	attrFloor = "floor"
	// and a limit's position: the units that were taken since the item has entries; never lowered.
	sumPrefix   = "a"
	entryPrefix = "e_" // and a process's name and mark: what that write did
	tokenPrefix = "o_" // and a reservation's id, shortened: its grant, while it is open
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
	lead   []byte           // see leads; nil: none
	lanes  map[string]int64 // by attribute

	limits      string // "": no entries, nor any of the following
	closed      bool
	epoch, base int64
	floor       int64
	sums        store.Amounts
	entries     map[string][]byte // by attribute
	tokens      map[string]int64  // by attribute
}

// appendable reports whether entries may be added.
func (img *image) appendable(now int64) bool {
	return !img.absent(now) && img.limits != "" && !img.closed
}

// absent reports whether there is no item that counts.
func (img *image) absent(now int64) bool { return !img.found || img.ttl <= now/1_000_000 }

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
	if l, ok := item[attrLimits].(*types.AttributeValueMemberS); ok {
		img.limits = l.Value
		img.epoch, img.base = number(attrEpoch), number(attrBase)
		if !img.found {
			return nil, fmt.Errorf("%w: an attribute is missing or of another type", errItem)
		}
	}
	for i := range img.sums {
		if _, ok := item[sumPrefix+strconv.Itoa(i)]; img.limits != "" && !ok {
			return nil, fmt.Errorf("%w: an attribute is missing", errItem)
		}
	}
	for name, v := range item {
		if err := img.readExtra(name, v); err != nil {
			return nil, err
		}
	}
	return img, nil
}

// readExtra reads an attribute that not all items have.
func (img *image) readExtra(name string, v types.AttributeValue) error {
	var n int64
	number, ok := v.(*types.AttributeValueMemberN)
	if ok {
		n, ok = whole(number.Value)
	}
	switch {
	case name == attrClosed:
		img.closed, ok = true, true
	case name == attrLead:
		var b *types.AttributeValueMemberB
		if b, ok = v.(*types.AttributeValueMemberB); ok {
			img.lead = b.Value
		}
	case name == attrFloor:
		img.floor = n
	case strings.HasPrefix(name, lanePrefix):
		keep(&img.lanes, name, n)
	case strings.HasPrefix(name, tokenPrefix):
		keep(&img.tokens, name, n)
	case strings.HasPrefix(name, entryPrefix):
		var b *types.AttributeValueMemberB
		if b, ok = v.(*types.AttributeValueMemberB); ok {
			keep(&img.entries, name, b.Value)
		}
	case len(name) == len(sumPrefix)+1 && strings.HasPrefix(name, sumPrefix):
		i := int(name[len(sumPrefix)] - '0')
		if ok = ok && i >= 0 && i < len(img.sums); ok {
			img.sums[i] = n
		}
	default:
		return nil
	}
	if !ok {
		return fmt.Errorf("%w: the attribute %.20q is of another type, or no whole number", errItem, name)
	}
	return nil
}

// keep puts a value into a map, which it makes if there is none.
func keep[V any](m *map[string]V, name string, v V) {
	if *m == nil {
		*m = map[string]V{}
	}
	(*m)[name] = v
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

// next returns the image that a write makes of this one.
func (img *image) next(rec *record.Record, plan *store.Plan, lane string, seq, now int64) *image {
	n := &image{
		found: true, record: record.Append(nil, rec, record.Whole), writes: img.writes + 1, life: img.life,
		lanes: map[string]int64{lane: seq},
	}
	n.lead = leads(rec, n.record)
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

// open gives an image that is to be written what entries need.
func (img *image) open(limits string, rec *record.Record) {
	img.limits, img.epoch = limits, img.writes
	img.tokens, _ = changed(nil, rec)
}

// lastUse returns until when something in a record may count, if nothing is taken any more.
func lastUse(rec *record.Record, encoded []byte, plan *store.Plan) int64 {
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
	after.Advance(store.Internal.Specs(plan, false), last)
	return max(last, after.Until())
}

// item returns the attributes of an image.
func (img *image) item(key, parts string, rec *record.Record, plan *store.Plan,
	now int64,
) map[string]types.AttributeValue {
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
	if img.lead != nil {
		item[attrLead] = &types.AttributeValueMemberB{Value: img.lead}
	}
	if img.limits == "" {
		return item
	}
	item[attrLimits] = &types.AttributeValueMemberS{Value: img.limits}
	item[attrEpoch], item[attrBase] = num(img.epoch), num(img.base)
	for i, n := range img.sums {
		item[sumPrefix+strconv.Itoa(i)] = num(n)
	}
	for name, v := range img.tokens {
		item[name] = num(v)
	}
	return item
}

func num(n int64) *types.AttributeValueMemberN {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// tokens returns what remains of each limit, for people who read the item.
func tokens(rec *record.Record, plan *store.Plan) *types.AttributeValueMemberM {
	limits := plan.Policy().Limits
	m := make(map[string]types.AttributeValue, len(limits))
	for i, s := range store.Internal.Specs(plan, false) {
		u := rec.Usage(&s, store.MaxPriority)
		m[limits[i].Name] = num(max(0, u.Max-u.Used))
	}
	return &types.AttributeValueMemberM{Value: m}
}
