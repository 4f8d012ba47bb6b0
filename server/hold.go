package server

import (
	"math"
	"strings"
	"time"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store"
)

// heldBuckets returns a reservation's buckets in their wire form, with what was granted: everything
// that is needed to settle it elsewhere.
func heldBuckets(res *engine.Result) []api.Bucket {
	d := &res.Reservation.Decision
	buckets := make([]api.Bucket, d.Buckets())
	for i := range res.Applied {
		if a := &res.Applied[i]; a.Bucket >= 0 {
			buckets[a.Bucket] = api.Bucket{Policy: a.Policy, Tenant: a.Tenant, Key: a.Key, Costs: api.Costs{}}
		}
	}
	bucket, n := -1, 0
	var got store.Amounts
	for l := range d.Limits() {
		if l.Bucket != bucket {
			bucket, n = l.Bucket, 0
			got = d.Granted(bucket)
		}
		buckets[bucket].Costs[present.Unit(l.Limit)] = got[n]
		n++
	}
	return buckets
}

// shadowsOf returns the part of a result with its shadows' reservation: nil if no shadow is held.
func shadowsOf(res *engine.Result) *engine.Result {
	if len(res.Shadow) == 0 {
		return nil
	}
	shadows := *res
	shadows.Reservation, shadows.Applied, shadows.Shadow = nil, nil, nil // these lists are reused
	return &shadows
}

// The ID and end with which the size of a token is estimated: as long as those of rand.Text, and of
// the next centuries.
var (
	anID  = strings.Repeat("A", 26)
	anEnd = time.UnixMilli(1e13 - 1)
)

// fits returns a problem for a take whose token would not fit into a settlement.
func fits(req *engine.Request) *api.Problem {
	size := 0
	for i := range req.Asks {
		size += len(req.Asks[i].Key) + len(req.Asks[i].Tenant)
	}
	if size < maxToken/16 { // even if everything in it must be escaped
		return nil
	}
	buckets := make([]api.Bucket, len(req.Asks))
	for i := range req.Asks {
		a := &req.Asks[i]
		buckets[i] = api.Bucket{Policy: a.Policy, Tenant: a.Tenant, Key: a.Key, Costs: api.Costs{}}
	}
	id := req.ID
	if id == "" {
		id = anID
	}
	if n := len(newToken(id, math.MaxUint64, anEnd, buckets)) + len(buckets)*costsSize; n > maxToken {
		return tokenTooLarge(n)
	}
	return nil
}

// costsSize is an upper bound for the size of a bucket's costs in a token: at most six units of 64
// letters, and numbers.
const costsSize = store.MaxLimits * (64 + 20) * 4 / 3

func tokenTooLarge(n int) *api.Problem {
	return problem(api.CodeTooLarge,
		"the reservation would have %d bytes, but at most %d are allowed: use shorter keys", n, maxToken)
}
