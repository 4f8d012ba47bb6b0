// Package owned says how it is written down whose something is that callers share: as a bucket of a
// policy of our own, of which only its owner has taken a unit.
package owned

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/store"
)

// PolicyName is the name of the policy, and Tenant that of its buckets.
const (
	PolicyName = store.OwnPolicies + "owned"
	Tenant     = "owned"
)

// Keep is how long it is known whose something is. What is asked for later is nobody's.
const Keep = 366 * 24 * time.Hour

const unit = "owned"

// Policy returns the policy. It admits nothing while the store is unavailable: what is not written
// down is nobody's.
func Policy() drawgate.Policy {
	return drawgate.Policy{Name: PolicyName, Fallback: drawgate.FallbackClosed, Limits: []drawgate.Limit{{
		Name: unit, Unit: unit, Kind: drawgate.Rolling, Amount: drawgate.MaxAmount, Window: Keep,
		Precision: store.MinPrecision,
	}}}
}

// Cost returns what is taken of a bucket: 1, or 0 to read it.
func Cost(n int64) []drawgate.Cost { return []drawgate.Cost{drawgate.Units(unit, n)} }

// Key returns the key of the bucket that says that what some names mean together is somebody's. It
// tells none of them.
func Key(names ...string) string {
	h := sha256.New()
	for _, name := range names {
		fmt.Fprintf(h, "%d:%s", len(name), name) //nolint:errcheck // a hash takes everything
	}
	return hex.EncodeToString(h.Sum(nil))
}
