package queue

import "time"

// Journey says how long answers take lately. The zero value knows of none.
type Journey struct{ mean, spread time.Duration }

// Add notes that an answer took so long. Mean and mean deviation forget as those of RFC 6298,
// section 2, do.
func (j *Journey) Add(took time.Duration) {
	if j.mean == 0 {
		j.mean, j.spread = took, took/2
		return
	}
	off := took - j.mean
	j.mean += off / 8
	j.spread += (off.Abs() - j.spread) / 4
}

// Most returns how long an answer takes that is not unusually late.
func (j *Journey) Most() time.Duration { return j.mean + 2*j.spread }
