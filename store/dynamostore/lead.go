package dynamostore

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/drawgate/drawgate/internal/record"
)

// leads returns what an item has beside its record of the limits' [record.State.Lead], or nil if
// there is none that counts. It is an attribute of its own, with the record's checksum: a program
// that does not know it changes the record alone, and the lead then counts as used, as it does for
// such a program.
func leads(rec *record.Record, encoded []byte) []byte {
	var b []byte
	for i := range rec.Limits {
		st := &rec.Limits[i]
		if st.Lead == 0 || st.LeadEnd <= rec.Last {
			continue
		}
		if b == nil {
			b = binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(encoded))
		}
		b = binary.AppendUvarint(b, uint64(i))
		b = binary.AppendVarint(binary.AppendVarint(b, st.Lead), st.LeadEnd)
	}
	return b
}

// setLeads sets what leads wrote, if it belongs to the record with these bytes.
func setLeads(rec *record.Record, encoded, b []byte) {
	r := reader{rest: b}
	sum := r.bytes(crc32.Size)
	if r.bad || binary.BigEndian.Uint32(sum) != crc32.ChecksumIEEE(encoded) {
		return
	}
	for len(r.rest) > 0 {
		i, lead, end := r.uvarint(), r.varint(), r.varint()
		if r.bad || i >= uint64(len(rec.Limits)) || lead < 0 {
			return
		}
		if st := &rec.Limits[i]; st.Kind == record.Bucket {
			st.Lead, st.LeadEnd = lead, end
		}
	}
}
