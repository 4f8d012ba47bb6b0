package rules

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/drawgate/drawgate/internal/needs"
)

// many returns 200 rules as an API may have them, five of them with an expression.
func many() (list []Rule) {
	for i := range 60 {
		list = append(list, Rule{Match: Match{
			Methods: []string{"POST"},
			Path:    fmt.Sprintf("/v1/service%d/{id}/items", i),
		}, Apply: apply("items", "user")})
	}
	for i := range 50 {
		list = append(list, Rule{Match: Match{Path: fmt.Sprintf("/v%d/area%d/*", i%3, i)}, Apply: apply("area", "ip")})
	}
	for i := range 30 {
		list = append(list, Rule{
			Match: Match{Class: fmt.Sprintf("class%d", i), Path: "/v1/*"},
			Apply: apply("class", `header("X-Api-Key")`),
		})
	}
	for i := range 20 {
		net := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16+i%3*4)
		list = append(list, Rule{Match: Match{IPs: []netip.Prefix{net}}, Apply: apply("office", "ip")})
	}
	for i := range 20 {
		list = append(list, Rule{
			Match: Match{Headers: map[string]string{"X-Team": fmt.Sprintf("team%d*", i)}},
			Apply: apply("team", `attr("team")`),
		})
	}
	for i := range 14 {
		list = append(list, Rule{
			Match: Match{Host: fmt.Sprintf("host%d.example.com", i)},
			Apply: apply("host", "host"),
		})
	}
	for i, when := range []string{
		`path startsWith "/v1/service7" and method == "POST"`, `header("X-Plan") == "free"`,
		`user != "" && not (class in ["internal", "partner"])`,
		`inside("203.0.113.0/24", "2001:db8::/32")`, `attr("team") matches "^red-[0-9]+$"`,
	} {
		list = append(list, Rule{When: when, Apply: apply(fmt.Sprint("when", i), "user")})
	}
	return append(list, Rule{Apply: apply("api", `"global"`, "per-ip", "ip")})
}

func manyAttributes() *Attributes {
	return &Attributes{
		Method: "POST", Path: "/v1/service7/17/items", Host: "host3.example.com", IP: netip.MustParseAddr("10.3.0.9"),
		User: "someone", Class: "class9",
		Headers: http.Header{"X-Team": {"team4-red"}, "X-Api-Key": {"k"}, "X-Plan": {"paid"}, "User-Agent": {"test"}},
		Extra:   map[string]string{"team": "red-12"},
	}
}

func BenchmarkMatch(b *testing.B) {
	s := compile(b, many()...)
	a, now := manyAttributes(), time.Now()
	var m Matches
	b.Run(fmt.Sprintf("rules=%d", s.Rules()), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Match(a, now, &m); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(m.Applied)), "applied")
	})
	one := compile(b, Rule{Apply: apply("p", "ip")})
	b.Run("rules=1", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := one.Match(a, now, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
	ten := make([]Rule, 0, MaxRules)
	for i := range MaxRules {
		ten = append(ten, Rule{
			Match: Match{Path: fmt.Sprintf("/v1/service%d/{id}/items", i)},
			Apply: apply("items", "user"),
		})
	}
	lots := compile(b, ten...)
	b.Run(fmt.Sprintf("rules=%d", lots.Rules()), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := lots.Match(a, now, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestMatchingDoesNotAllocate for 200 rules and keys of a single attribute; a key of several parts
// is one allocation.
func TestMatchingDoesNotAllocate(t *testing.T) {
	needs.NoRace(t)
	for name, c := range map[string]struct {
		set  *Set
		want float64
	}{
		"200 rules":     {compile(t, many()...), 0},
		"a key of two":  {compile(t, Rule{Apply: apply("p", "join(ip, path)")}), 1},
		"a secret":      {compile(t, Rule{Apply: apply("p", `hash(header("X-Api-Key"))`)}), 1},
		"a tenant, too": {compile(t, Rule{Tenant: `attr("team")`, Apply: apply("p", "weekday", "q", "address")}), 0},
	} {
		a, now := manyAttributes(), time.Now()
		var m Matches
		got := testing.AllocsPerRun(100, func() {
			if err := c.set.Match(a, now, &m); err != nil {
				t.Fatal(err)
			}
		})
		if got != c.want {
			t.Errorf("%s: %v allocations, want %v", name, got, c.want)
		}
		if len(m.Applied) == 0 {
			t.Errorf("%s: nothing is applied", name)
		}
	}
}
