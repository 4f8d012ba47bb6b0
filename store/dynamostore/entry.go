package dynamostore

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/drawgate/drawgate/internal/record"
	"github.com/drawgate/drawgate/store"
)

// entry is what one write did to a bucket: takes that were granted and reservations that were
// settled, in order, at one instant. It is kept beside the record until somebody carries it over.
type entry struct {
	at, blur int64 // µs
	after    int64 // more than that of all entries that its writer knew: entries of one instant are in this order
	ops      []op
}

// op is one take, settlement or cancellation.
type op struct {
	kind    opKind
	id      string // "" for a plain take
	grant   uint64
	content uint64         // of a take with an id
	hold    int64          // µs
	n       record.Amounts // by the position of the item's limits
}

// opKind is stored and never changes.
type opKind uint8

const (
	opTake opKind = iota + 1
	opSettle
	opCancel
)

// entryVersion is the first byte of an entry. A higher one is of a newer version of the program.
const entryVersion = 1

// bytes returns the entry as it is kept: with its version before and a checksum after it.
func (e *entry) bytes() []byte {
	b := []byte{entryVersion}
	b = binary.AppendVarint(binary.AppendVarint(binary.AppendVarint(b, e.at), e.blur), e.after)
	for i := range e.ops {
		o := &e.ops[i]
		b = append(b, byte(o.kind))
		b = binary.AppendUvarint(b, uint64(len(o.id)))
		b = append(b, o.id...)
		if o.id != "" {
			b = binary.BigEndian.AppendUint64(b, o.grant)
		}
		if o.kind == opTake && o.id != "" {
			b = binary.AppendVarint(binary.BigEndian.AppendUint64(b, o.content), o.hold)
		}
		n := len(o.n)
		for n > 0 && o.n[n-1] == 0 {
			n--
		}
		b = append(b, byte(n))
		for _, k := range o.n[:n] {
			b = binary.AppendVarint(b, k)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// readEntry reads what bytes wrote.
func readEntry(b []byte) (*entry, error) {
	if len(b) > 0 && b[0] > entryVersion {
		return nil, fmt.Errorf("%w: an entry of version %d", errNewer, b[0])
	}
	n := len(b) - crc32.Size
	if n < 1 || b[0] != entryVersion || binary.BigEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return nil, fmt.Errorf("%w: an entry cannot be read", errItem)
	}
	r := reader{rest: b[1:n]}
	e := &entry{at: r.varint(), blur: r.varint(), after: r.varint()}
	for len(r.rest) > 0 && !r.bad {
		o := op{kind: opKind(r.byte())}
		o.id = string(r.bytes(r.uvarint()))
		if o.id != "" {
			o.grant = r.uint64()
		}
		if o.kind == opTake && o.id != "" {
			o.content, o.hold = r.uint64(), r.varint()
		}
		n := int(r.byte())
		if n > len(o.n) || o.kind < opTake || o.kind > opCancel {
			r.bad = true
			break
		}
		for i := range n {
			o.n[i] = r.varint()
			if o.n[i] < 0 && (o.kind != opSettle || o.n[i] != store.KeepEstimate) || o.n[i] > store.MaxAmount {
				r.bad = true
			}
		}
		if o.hold < 0 || o.hold > store.MaxHold.Microseconds()*2 || (o.kind == opTake) != (o.id == "" || o.hold > 0) {
			r.bad = true
		}
		e.ops = append(e.ops, o)
	}
	if r.bad || e.blur < 0 || e.blur > maxBlur || e.at <= 0 || e.at > store.MaxInstant {
		return nil, fmt.Errorf("%w: an entry cannot be read", errItem)
	}
	return e, nil
}

// reader reads numbers, and remembers if something was missing.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) bytes(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.rest)
	r.bytes(uint64(max(n, 0)))
	r.bad = r.bad || n <= 0
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.rest)
	r.bytes(uint64(max(n, 0)))
	r.bad = r.bad || n <= 0
	return v
}

// enter carries an entry over into a record.
func (s *Store) enter(rec *record.Record, plan *store.Plan, e *entry) {
	specs := store.Internal.Specs(s.variant(planKey{plan, e.blur, false}), false)
	for i := range e.ops {
		o := &e.ops[i]
		ask := record.Ask{Rec: rec, Specs: specs, N: o.n}
		if o.kind == opTake {
			record.Enter(&ask, &record.Take{ID: o.id, Grant: o.grant, Fingerprint: o.content, Hold: o.hold}, e.at)
			continue
		}
		record.Settle([]record.Ask{ask}, o.id, o.grant, o.kind == opCancel, e.at)
	}
}

// bucket returns the record of an image at an instant, with its entries. An item whose time is over
// counts as absent, whether or not the service has deleted it.
func (s *Store) bucket(img *image, now int64) (*record.Record, error) {
	if img.absent(now) {
		return &record.Record{}, nil
	}
	r, form, err := record.Decode(img.record)
	if err == nil && form != record.Whole {
		err = record.ErrDamaged
	}
	if errors.Is(err, record.ErrVersion) {
		return nil, fmt.Errorf("%w: %w", errNewer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errItem, err)
	}
	if img.lead != nil {
		setLeads(r, img.record, img.lead)
	}
	if len(img.entries) == 0 {
		return r, nil
	}
	plan, err := s.planOf(img.limits)
	if err != nil {
		return nil, err
	}
	list, err := img.ordered()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		s.enter(r, plan, e)
	}
	return r, nil
}

// ordered returns the entries of an image in the order in which they count.
func (img *image) ordered() ([]*entry, error) {
	list := make([]*entry, 0, len(img.entries))
	for _, name := range slices.Sorted(maps.Keys(img.entries)) {
		e, err := readEntry(img.entries[name])
		if err != nil {
			return nil, err
		}
		list = append(list, e)
	}
	slices.SortStableFunc(list, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.at, b.at),
			cmp.Compare(a.after, b.after))
	})
	return list, nil
}

// limit is what of a limit decides how a bucket counts. An item with entries has those that the
// amounts of its entries belong to: a process with others cannot append.
type limit struct {
	Name      string        `json:"name"`
	Unit      string        `json:"unit,omitempty"`
	Kind      store.Kind    `json:"kind"`
	Amount    int64         `json:"amount"`
	Window    time.Duration `json:"window,omitempty"`
	Burst     int64         `json:"burst,omitempty"`
	Every     store.Every   `json:"every,omitempty"`
	Zone      string        `json:"zone,omitempty"`
	Anchor    int           `json:"anchor,omitempty"`
	Precision int           `json:"precision,omitempty"`
	Margin    time.Duration `json:"margin,omitempty"`
	Charge    store.Charge  `json:"charge,omitempty"`
	Headroom  store.Share   `json:"headroom,omitzero"`
}

// limitsOf returns a plan's limits as an item has them.
func (s *Store) limitsOf(p *store.Plan) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text, ok := s.texts[p]; ok {
		return text
	}
	var list []limit
	for _, l := range p.Policy().Limits {
		list = append(list, limit{
			l.Name, l.Unit, l.Kind, l.Amount, l.Window, l.Burst, l.Every, l.Zone, l.Anchor,
			l.Precision, l.Margin, l.Charge, l.Headroom,
		})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) //nolint:forbidigo // numbers and strings
	}
	if len(s.texts) >= mostPlans {
		clear(s.texts)
	}
	s.texts[p] = string(b)
	return string(b)
}

// planOf returns a plan with the limits that an item has.
func (s *Store) planOf(limits string) (*store.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.stored[limits]; p != nil {
		return p, nil
	}
	var list []limit
	d := json.NewDecoder(strings.NewReader(limits))
	d.DisallowUnknownFields()
	if err := d.Decode(&list); err != nil {
		if json.Valid([]byte(limits)) {
			return nil, fmt.Errorf("%w: its limits say what this version does not know", errNewer)
		}
		return nil, fmt.Errorf("%w: its limits cannot be read", errItem)
	}
	policy := store.Policy{Name: "stored"}
	for _, l := range list {
		policy.Limits = append(policy.Limits, store.Limit{
			Name: l.Name, Unit: l.Unit, Kind: l.Kind, Amount: l.Amount, Window: l.Window, Burst: l.Burst,
			Every: l.Every,
			Zone:  l.Zone, Anchor: l.Anchor, Precision: l.Precision, Margin: l.Margin, Charge: l.Charge,
			Headroom: l.Headroom,
		})
	}
	p, err := policy.Compile()
	if err != nil {
		return nil, fmt.Errorf("%w: its limits: %w", errItem, err)
	}
	if len(s.stored) >= mostPlans {
		clear(s.stored)
	}
	s.stored[limits] = p
	return p, nil
}

// settled is the token of a reservation that an entry has settled.
const settled = -1

// token returns the attribute that an open reservation has while there are entries.
func token(id string) string {
	sum := sha256.Sum256([]byte(id))
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(sum[:8])
}

// tokenValue returns the value of a reservation's token, which every service keeps exactly.
func tokenValue(grant uint64) int64 { return int64(grant & (1<<53 - 1)) }
