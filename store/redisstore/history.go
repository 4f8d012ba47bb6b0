package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/store"
)

// Histories of buckets: what a server says that may have lost what it acknowledged. history.lua has
// what is stored.

// Each call has a place for the generation of the server on which it runs, after 8 random bytes by
// which the connection finds it (see namer). So no call can name another server, also if it is
// redirected. Where nobody fills it in, because the connections are the caller's, it stays zero.
const (
	placeMarker = 8
	placeSize   = placeMarker + 8
	knownSize   = 24 // per bucket: mark and generation
)

// newPlace returns a place that no other store has.
func newPlace() string {
	place := make([]byte, placeSize)
	_, _ = rand.Read(place[:placeMarker]) // it never fails
	return string(place)
}

// KeepsHistory implements [store.Historian].
func (s *Store) KeepsHistory() bool { return true }

// nothing stands for a process that knows nothing of a record: no mark is like this.
const nothing = -2

// appendKnown appends what is known of the history of each bucket.
func appendKnown(buf []byte, known []store.Known) []byte {
	for _, k := range known {
		if k == (store.Known{}) {
			k.Mark.Clock = nothing
		}
		buf = appendNum(binary.BigEndian.AppendUint64(buf, k.Mark.Generation), k.Mark.Clock)
		buf = binary.BigEndian.AppendUint64(buf, k.Generation)
	}
	return buf
}

// setKnown makes a request one whose answer has histories, which go to out.
func (r *request) setKnown(known []store.Known, out *[]store.History) {
	if len(known) == 0 {
		return
	}
	if len(known) != len(r.buckets) {
		r.err = fmt.Errorf("%w: something is known of %d buckets, and %d are named", store.ErrInvalid, len(known),
			len(r.buckets))
		return
	}
	r.known, r.knows, r.histories = string(appendKnown(nil, known)), known, out
}

// Flags of what is told of a history.
const (
	toldWrote = 1 << iota
	toldGone
	toldUnmet
	toldList
)

// Flags of a history.
const (
	historyReset = 1 << iota
	historyPauses
)

const historyFormat = 1

// readPast reads what is told of a history to a caller who knows this much.
func readPast(text string, known store.Known) (h store.History, err error) {
	r := reader{buf: text}
	flags := r.byte()
	h.Wrote, h.Gone, h.Unmet = flags&toldWrote != 0, flags&toldGone != 0, flags&toldUnmet != 0
	h.Last, h.Known, h.Listed = r.num(), known, flags&toldList != 0
	generation := r.id()
	if h.Listed {
		h.Generation = generation
		readHistory(&r, &h)
	}
	if r.bad || len(r.buf) > 0 {
		return h, errAnswer
	}
	return h, nil
}

// readHistory reads a record's history. There is none if there is no record.
func readHistory(r *reader, h *store.History) {
	till := r.num()
	h.Mark = store.NoRecord
	if len(r.buf) > 0 {
		if r.byte() != historyFormat {
			r.bad = true
		}
		flags := r.byte()
		if flags&historyReset != 0 {
			h.Reset = r.num()
		}
		if flags&historyPauses != 0 {
			if set, until := r.num(), r.num(); until == till {
				h.Paused = set
			}
			h.Resumed = r.num()
		}
		h.Epochs = make([]store.Epoch, 1, 1+(len(r.buf)-16)/32)
		h.Epochs[0].Mark = readMark(r)
		for len(r.buf) > 0 && !r.bad {
			h.Epochs = append(h.Epochs, store.Epoch{Start: r.num(), Until: r.num(), Mark: readMark(r)})
		}
		h.Mark = h.Epochs[len(h.Epochs)-1].Mark
	}
	if h.Generation != 0 {
		return
	}
	// The server did not say which it is: nothing is pending, and something is known.
	if h.Generation = h.Mark.Generation; h.Mark == (store.Mark{}) {
		h.Generation = 1
	}
}

func readMark(r *reader) store.Mark { return store.Mark{Generation: r.id(), Clock: r.num()} }

// gotHistories reads what is told of histories, and returns the answer that they came with.
func (r *request) gotHistories(m *rueidis.RedisMessage) (*rueidis.RedisMessage, error) {
	if !m.IsArray() {
		return m, nil
	}
	parts, err := m.ToArray()
	if err != nil || len(parts) < 2 {
		return nil, errAnswer
	}
	code, err := parts[0].AsInt64()
	if err != nil {
		return nil, errAnswer
	}
	if code != gotTold {
		return m, nil
	}
	if len(parts) != 4 {
		return nil, errAnswer
	}
	texts, err := parts[3].AsStrSlice()
	if err != nil || len(texts) != len(r.knows) {
		return nil, errAnswer
	}
	r.past = make([]store.History, len(texts))
	for i, text := range texts {
		if r.past[i], err = readPast(text, r.knows[i]); err != nil {
			return nil, err
		}
	}
	return &parts[2], nil
}

// tellShort makes the history of a bucket whose last mark the caller knew. last is its last write.
func (r *request) tellShort(wrote bool, last int64) {
	if r.known != "" && r.past == nil {
		r.past = []store.History{{Known: r.knows[0], Wrote: wrote, Last: last}}
	}
}

// PeekKnown implements [store.Historian].
func (s *Store) PeekKnown(ctx context.Context, buckets []store.BucketCost, priority int8, known []store.Known,
	out []store.State,
) error {
	if len(known) != len(buckets) {
		return fmt.Errorf("%w: something is known of %d buckets, and %d are named", store.ErrInvalid, len(known),
			len(buckets))
	}
	return s.peek(ctx, buckets, priority, known, out)
}

// recoverExtra returns the further arguments of a charge of what was lost.
func recoverExtra(rec *store.Recovery, b *store.BucketCost) (string, error) {
	if rec.Grant == 0 || len(rec.Parts) > math.MaxUint16 {
		return "", fmt.Errorf("%w: a recovery of %d parts under grant %v", store.ErrInvalid, len(rec.Parts), rec.Grant)
	}
	limits := len(store.Internal.Specs(b.Plan, false))
	buf := binary.BigEndian.AppendUint64(nil, uint64(rec.Grant))
	buf = binary.LittleEndian.AppendUint16(buf, uint16(len(rec.Parts)))
	for i := range rec.Parts {
		p := &rec.Parts[i]
		buf = appendNums(buf, instant(p.From), instant(p.Until))
		for _, n := range p.N[:limits] {
			buf = appendNum(buf, max(n, 0))
		}
	}
	return string(buf), nil
}

// instant returns an instant that the script can compute with.
func instant(at int64) int64 { return min(max(at, 0), store.MaxInstant) }

// checkRecovery reports what is wrong with a recovery.
func checkRecovery(rec *store.Recovery, buckets []store.BucketCost, known []store.Known) error {
	if rec != nil && (len(buckets) != 1 || len(known) != 1) {
		return fmt.Errorf("%w: a recovery of %d buckets, of which %d are known: it needs one", store.ErrInvalid,
			len(buckets), len(known))
	}
	return nil
}
