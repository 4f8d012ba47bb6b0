package dynamostore

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// A write that replaces the whole item fails if another process was faster. That is rare, until
// many processes use one bucket at the same time: then nearly all of them fail. So an item that
// several processes write has entries: each write adds one, and the writes of different processes
// commute. Checked in
// models/commute.py.
//
//   - A take is decided by an image of the item that may be old. Others may have taken since, and
//     each of them raised the item's sums, which nothing lowers. What an image had room for is room
//     for what was added to the sums since: so the write is on the condition that the sums have
//     grown by no more than what this take leaves. Units that expired or came back meanwhile only
//     make more room.
//   - Now and then a write carries the entries that it knows over into the record: a fold. Entries
//     that it does not know stay. Folds exclude each other, and takes only depend on what was used,
//     so a fold disturbs no take.
//   - What a sum cannot express, such as a longer hold or a pause, is a fold that raises the item's
//     epoch: what was decided before it is refused, and decided anew.
//   - An open reservation has a token, which its settlement changes: so it is settled once. Until a
//     fold removes it the id is not free: entries of several reservations would lose their order.
//   - A write that arrives late is refused: by the mark of its process if that has written
//     since, and by the floor if the mark is gone.
//   - An item that is used by one process again, or with other limits, is closed first: then nobody
//     adds entries, and the next write replaces the whole item.

const (
	contestTime = 5 * time.Second // without another process's writes, after which entries are given up
	fewWrites   = 8               // after so many at least somebody folds
	manyWrites  = 256             // and so many at most
	mostEntries = 400             // that one write carries over
	mostIDs     = 60              // reservations in one entry
	mostText    = 3500            // bytes of an expression, of which DynamoDB allows 4,096
	longestHold = 24 * time.Hour  // of a reservation in an entry, see ttl
)

// update is an UpdateItem in the making.
type update struct {
	in                *dynamodb.UpdateItemInput
	sets, adds, drops []string
	conditions        []string
}

func newUpdate(table, key string) *update {
	return &update{in: &dynamodb.UpdateItemInput{
		TableName: &table, Key: primary(key), ReturnValues: types.ReturnValueAllNew,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		ExpressionAttributeNames:            map[string]string{},
		ExpressionAttributeValues:           map[string]types.AttributeValue{},
	}}
}

// name returns what stands for an attribute in expressions.
func (u *update) name(attribute string) string {
	alias := "#" + attribute
	if strings.ContainsAny(attribute, "-_") { // base64 has both, and names allow only one of them
		alias = "#n" + strconv.Itoa(len(u.in.ExpressionAttributeNames))
		for a, name := range u.in.ExpressionAttributeNames {
			if name == attribute {
				return a
			}
		}
	}
	u.in.ExpressionAttributeNames[alias] = attribute
	return alias
}

func (u *update) value(v types.AttributeValue) string {
	alias := ":v" + strconv.Itoa(len(u.in.ExpressionAttributeValues))
	u.in.ExpressionAttributeValues[alias] = v
	return alias
}

func (u *update) set(attribute string, v types.AttributeValue) {
	u.sets = append(u.sets, u.name(attribute)+" = "+u.value(v))
}

func (u *update) add(attribute string, n int64) {
	u.adds = append(u.adds, u.name(attribute)+" "+u.value(num(n)))
}

func (u *update) drop(attribute string) { u.drops = append(u.drops, u.name(attribute)) }

func (u *update) when(attribute, relation string, n int64) {
	u.conditions = append(u.conditions, u.name(attribute)+" "+relation+" "+u.value(num(n)))
}

func (u *update) absentOr(attribute, relation string, n int64) {
	name := u.name(attribute)
	u.conditions = append(u.conditions, "(attribute_not_exists("+name+") OR "+name+" "+relation+" "+u.value(num(n))+")")
}

func (u *update) absent(attribute string) {
	u.conditions = append(u.conditions, "attribute_not_exists("+u.name(attribute)+")")
}

// input returns the request.
func (u *update) input() *dynamodb.UpdateItemInput {
	var text []string
	for _, c := range []struct {
		word  string
		parts []string
	}{{"SET ", u.sets}, {"ADD ", u.adds}, {"REMOVE ", u.drops}} {
		if len(c.parts) > 0 {
			text = append(text, c.word+strings.Join(c.parts, ", "))
		}
	}
	expression, condition := strings.Join(text, " "), strings.Join(u.conditions, " AND ")
	u.in.UpdateExpression, u.in.ConditionExpression = &expression, &condition
	return u.in
}

// begun returns an update of the line's item that is carried out once: not if this process has
// written since the first attempt of this call, nor if that was so long ago that nobody could know.
func (s *Store) begun(l *line, a, first *attempt) *update {
	u := newUpdate(s.table, l.key)
	u.when(attrLife, "=", l.image.life)
	u.when(attrEpoch, "=", l.image.epoch)
	u.absentOr(s.lane, "<", first.seq)
	u.absentOr(attrFloor, "<=", first.at.early)
	u.set(s.lane, num(a.seq))
	u.set(attrRefill, num(a.at.early/1000))
	u.add(attrWrites, 1)
	return u
}

// closing returns an update after which nobody adds entries.
func (s *Store) closing(l *line, a, first *attempt) *update {
	u := s.begun(l, a, first)
	u.set(attrClosed, num(1))
	u.add(attrEpoch, 1)
	return u
}

// appending returns an update that adds an entry.
func (s *Store) appending(l *line, a, first *attempt) *update {
	u := s.begun(l, a, first)
	u.grant(l, a)
	if len(a.ops) > 0 {
		u.set(entryPrefix+s.lane[len(lanePrefix):]+strconv.FormatInt(a.seq, 36),
			&types.AttributeValueMemberB{Value: a.entry})
		u.set(attrTokens, tokens(a.rec, a.plan))
		u.set(TTLAttribute, num(ttl(l.image, a)))
	}
	for _, o := range a.ops {
		switch name := token(o.id); {
		case o.kind != opTake:
			u.when(name, "=", tokenValue(o.grant))
			u.set(name, num(settled))
		case o.id != "":
			u.absent(name)
			u.set(name, num(tokenValue(o.grant)))
		}
	}
	return u
}

// grant adds what was taken to the sums, if others have left room for it.
func (u *update) grant(l *line, a *attempt) {
	for i, n := range a.adds {
		name := sumPrefix + strconv.Itoa(i)
		if n > 0 || a.bounded && i < len(a.plan.Policy().Limits) {
			u.when(name, "<=", l.image.sums[i]+a.left[i])
		}
		if n > 0 {
			u.add(name, n)
		}
	}
}

// folding returns an update that carries the entries of the image over into the record.
func (s *Store) folding(l *line, a, first *attempt, quiet bool) *update {
	img := l.image
	u := s.begun(l, a, first)
	u.when(attrBase, "=", img.base)
	u.add(attrBase, 1)
	u.grant(l, a)
	u.set(attrRecord, &types.AttributeValueMemberB{Value: a.image.record})
	if a.image.lead != nil {
		u.set(attrLead, &types.AttributeValueMemberB{Value: a.image.lead})
	}
	u.set(attrTokens, tokens(a.rec, a.plan))
	u.set(TTLAttribute, num(ttl(img, a)))
	for name := range img.entries {
		u.drop(name)
	}
	set, drop := changed(img.tokens, a.rec)
	for name := range a.open {
		if v, ok := img.tokens[name]; ok && !slices.Contains(drop, name) {
			u.when(name, "=", v)
		}
	}
	for name, v := range set {
		if old, ok := img.tokens[name]; ok && !a.open[name] {
			u.when(name, "=", old)
		} else if !ok {
			u.absent(name)
		}
		u.set(name, num(v))
	}
	for _, name := range drop { // settled by this write, or over: in both cases nobody else may have settled it
		u.when(name, "=", img.tokens[name])
		u.drop(name)
	}
	gone := false
	for name, at := range img.lanes {
		if _, kept := a.image.lanes[name]; !kept {
			gone = gone || at >= img.floor
			u.when(name, "=", at) // else it is not old any more
			u.drop(name)
		}
	}
	if gone {
		u.set(attrFloor, num(max(img.floor, a.at.early-laneLife.Microseconds()+1)))
	}
	for mark := range a.marks {
		u.set(mark, num(a.at.early))
	}
	if quiet {
		u.set(attrClosed, num(1))
	}
	if a.bump || quiet {
		u.add(attrEpoch, 1)
	}
	return u
}

// changed returns the tokens that a record's open reservations have and those that are left over,
// as far as they are not as in the item.
func changed(have map[string]int64, rec *record.Record) (set map[string]int64, drop []string) {
	want := make(map[string]int64, len(rec.Open))
	for id, o := range rec.Open {
		want[token(id)] = tokenValue(o.Grant)
	}
	for name := range have {
		if _, ok := want[name]; !ok {
			drop = append(drop, name)
		}
	}
	maps.DeleteFunc(want, func(name string, v int64) bool { old, ok := have[name]; return ok && old == v })
	return want, drop
}

// ttl returns when the service may delete an item with entries: a week after everything that
// anybody who may add an entry may have used.
func ttl(img *image, a *attempt) int64 {
	specs := store.Internal.Specs(a.plan, false)
	all := record.Ask{Rec: &record.Record{}, Specs: specs}
	for i := range specs {
		if specs[i].Kind != record.Concurrency {
			all.N[i] = specs[i].Effective[store.MaxPriority]
		}
	}
	now := max(a.at.early, a.rec.Last)
	record.Enter(&all, &record.Take{}, now+longestHold.Microseconds()+2*maxBlur)
	last := max(now+longestHold.Microseconds(), all.Rec.Until())
	return max(img.ttl, a.image.ttl, (last+lifeTime.Microseconds())/1_000_000+1)
}

// form says how an attempt is written.
type form uint8

const (
	replace form = iota // the whole item
	add                 // an entry
	fold
	foldLast // and then nobody adds entries
	shut     // nobody adds entries any more: nothing else is done
)

// form returns how an attempt is to be written.
func (s *Store) form(l *line, a *attempt) form {
	img := l.image
	if !img.appendable(a.at.early) {
		return replace
	}
	if a.exclusive || s.sameLimits(a.plans) != img.limits {
		return shut
	}
	contested := s.contested(l)
	size := len(a.entry) + (len(img.tokens)+len(a.rec.Open)+len(img.lanes))*tokenBytes
	for name, b := range img.entries {
		size += len(name) + len(b)
	}
	if size+max(len(img.record), len(a.image.record)) > mostBytes {
		return shut
	}
	late := len(img.entries) > mostEntries/2 && rand.N(fewWrites) == 0 //nolint:gosec // those whose turn it was have not come
	if a.commutes && contested && !l.turn && !late && s.tokensFit(img, a) {
		return add
	}
	set, drop := changed(img.tokens, a.rec)
	switch {
	case len(img.entries) > mostEntries || a.text(img, len(set), len(drop)) > mostText:
		return shut
	case contested:
		return fold
	}
	return foldLast
}

// count notes how many others have written an item since this process's last write, and whether it
// is this process's turn to fold. Each write has a number of its own, so turns are rarely taken by
// two at the same time: they are as far apart as all processes together write while one write is on
// its way, which is also how many entries a fold has to leave.
func (l *line) count(img *image) {
	others := img.writes - l.image.writes - 1
	if others > 0 {
		l.contest()
	}
	every := int64(fewWrites)
	for every < manyWrites && every < 2*others {
		every *= 2
	}
	l.turn = img.writes%every == 0
}

// sameLimits returns the limits of plans, "" if they differ.
func (s *Store) sameLimits(plans []*store.Plan) string {
	limits := s.limitsOf(plans[0])
	for _, p := range plans[1:] {
		if p != plans[0] && s.limitsOf(p) != limits {
			return ""
		}
	}
	return limits
}

// text returns how many bytes the longer expression of a fold has, or more, if it sets and drops so
// many tokens.
func (a *attempt) text(img *image, set, drop int) int {
	old := len(img.lanes) + 1 - len(a.image.lanes) + len(a.marks) // marks that are dropped
	condition := 300 + 32*set + 18*(drop+old+len(a.open))
	return max(condition, 300+8*(len(img.entries)+drop+old)+15*(set+len(a.marks)))
}

// tokensFit reports whether the tokens of an image allow what an attempt does.
func (s *Store) tokensFit(img *image, a *attempt) bool {
	var seen []string
	for _, o := range a.ops {
		if o.id == "" {
			continue
		}
		name := token(o.id)
		v, there := img.tokens[name]
		if len(seen) == mostIDs || slices.Contains(seen, name) || there != (o.kind != opTake) ||
			there && v != tokenValue(o.grant) {
			return false
		}
		seen = append(seen, name)
	}
	return true
}
