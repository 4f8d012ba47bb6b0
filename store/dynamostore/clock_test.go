package dynamostore_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store/dynamostore"
)

// machine is one whose clocks are not those of the service.
type machine struct {
	service         int64 // what the service's clock says, Unix µs
	monotonic, wall int64 // what ours say
	fast            int64 // by how much our clocks are faster, in millionths
}

// run lets time pass.
func (m *machine) run(us int64) {
	m.service += us
	us += us * m.fast / 1_000_000
	m.monotonic += us
	m.wall += us
}

// suspend stops the machine meanwhile: its monotonic clock stands still.
func (m *machine) suspend(us int64) {
	m.service += us
	m.wall += us
}

// The service's clock is always within what the estimate says: whatever the drift, however long
// calls take, and when the wall clock is set or the machine is suspended, during a call or between
// two.
func TestClockIsWithinItsEstimate(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 13))
		m := machine{service: 1_800_000_000_000_000 + r.Int64N(1_000_000), fast: r.Int64N(801) - 400}
		m.wall, m.monotonic = m.service+r.Int64N(40_000_000)-20_000_000, r.Int64N(1_000_000_000)
		c := dynamostore.NewClock(func() int64 { return m.monotonic }, func() int64 { return m.wall })
		var did []string
		check := func() {
			early, late, known := c.Now()
			if known && (m.service < early || m.service > late) {
				t.Fatalf("seed %d: the service's clock is %d µs after the estimate's start and %d before its end, after %v", seed, m.service-early, late-m.service, did)
			}
		}
		for range 40 {
			// Until the next answer it is either set or suspended: both could hide each other.
			trouble := r.IntN(4)
			pass := func(longest int64) {
				for range r.IntN(3) {
					us := r.Int64N(longest)
					did = append(did, fmt.Sprintf("%d µs, trouble %d", us, trouble))
					switch {
					case trouble == 1 && r.IntN(2) == 0:
						m.suspend(us)
					case trouble == 2 && r.IntN(2) == 0:
						m.wall += r.Int64N(10_000_000) - 5_000_000
					default:
						m.run(us)
					}
					check()
				}
			}
			pass(5_000_000)
			err := c.Ask(func() time.Time {
				pass(1_000_000)
				date := time.UnixMicro(m.service / 1_000_000 * 1_000_000)
				pass(1_000_000)
				return date
			})
			if err != nil { // too far off for the service: somebody sets it right
				m.wall = m.service
				continue
			}
			check()
			did = did[max(0, len(did)-20):]
		}
	}
}

// Whoever asks a few times knows the clock well again after the wall clock was set or the machine
// was suspended, and while it is not known well, that is said.
func TestClockRecovers(t *testing.T) {
	t.Parallel()
	for name, disturb := range map[string]func(m *machine){
		"set forward":         func(m *machine) { m.wall += 20_000_000 },
		"set back":            func(m *machine) { m.wall -= 20_000_000 },
		"suspended":           func(m *machine) { m.suspend(3_600_000_000) },
		"suspended for 50 ms": func(m *machine) { m.suspend(50_000) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := machine{service: 1_800_000_000_000_000, wall: 1_800_000_000_000_000}
			c := dynamostore.NewClock(func() int64 { return m.monotonic }, func() int64 { return m.wall })
			ask := func() {
				if err := c.Ask(func() time.Time {
					m.run(5_000)
					return time.UnixMicro(m.service / 1_000_000 * 1_000_000)
				}); err != nil {
					t.Fatal(err)
				}
			}
			for range 100 {
				ask()
				m.run(37_000)
			}
			early, late, known := c.Now()
			if blur := late - early; !known || blur > 100_000 {
				t.Fatalf("before: known %v, to %d µs", known, blur)
			}
			before := late - early
			disturb(&m)
			if early, late, known := c.Now(); known && late-early < before+50_000 {
				t.Errorf("the estimate is as narrow as before: %d µs", late-early)
			}
			for range 100 {
				ask()
				m.run(37_000)
			}
			if early, late, known := c.Now(); !known || late-early > 100_000 {
				t.Errorf("after 100 answers: known %v, to %d µs", known, late-early)
			}
		})
	}
}

// A clock that is so wrong that the service would soon refuse our signatures is not used until it
// is set, whatever the estimate was before.
func TestAWrongClockIsNotUsed(t *testing.T) {
	t.Parallel()
	for _, off := range []int64{-3_600_000_000, 3_600_000_000} {
		m := machine{service: 1_800_000_000_000_000, wall: 1_800_000_000_000_000}
		c := dynamostore.NewClock(func() int64 { return m.monotonic }, func() int64 { return m.wall })
		for _, step := range []struct {
			add   int64
			known bool
		}{{0, true}, {off, false}, {-off, true}} {
			m.wall += step.add
			err := c.Ask(func() time.Time {
				m.run(5_000)
				return time.UnixMicro(m.service / 1_000_000 * 1_000_000)
			})
			if _, _, known := c.Now(); known != step.known || (err == nil) != known {
				t.Errorf("set by %d µs: known %v, %v, want %v", step.add, known, err, step.known)
			}
		}
	}
}
