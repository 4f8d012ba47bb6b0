package calendar

import (
	"testing"
	"time"
)

func BenchmarkWindow(b *testing.B) {
	newYork := zoneNamed(b, "America/New_York") // rules without a table, which cost the most
	plain := time.Date(2026, time.July, 1, 12, 0, 0, 0, time.UTC).UnixMicro()
	nearChange := time.Date(2026, time.November, 1, 6, 0, 0, 0, time.UTC).UnixMicro() // clocks went back
	for _, c := range []struct {
		name string
		rule Rule
		t    int64
	}{
		{"zone=utc/unit=minute", Rule{Unit: Minute}, plain},
		{"zone=utc/unit=day", Rule{Unit: Day}, plain},
		{"zone=utc/unit=week", Rule{Unit: Week}, plain},
		{"zone=utc/unit=month", Rule{Unit: Month}, plain},
		{"zone=utc/unit=month/anchor=31", Rule{Unit: Month, Anchor: 31}, plain},
		{"zone=named/unit=minute", Rule{Unit: Minute, Zone: newYork}, plain},
		{"zone=named/unit=day", Rule{Unit: Day, Zone: newYork}, plain},
		{"zone=named/unit=month", Rule{Unit: Month, Zone: newYork}, plain},
		{"zone=named/unit=minute/near=change", Rule{Unit: Minute, Zone: newYork}, nearChange},
		{"zone=named/unit=day/near=change", Rule{Unit: Day, Zone: newYork}, nearChange},
		{"zone=named/unit=month/near=change", Rule{Unit: Month, Zone: newYork}, nearChange},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.rule.Window(c.t)
			}
		})
	}
}
