package calendar

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests need no time zone database on the machine
)

func TestUnitNames(t *testing.T) {
	t.Parallel()
	names := []string{"minute", "hour", "day", "week", "month"}
	if len(names) != int(End-Minute) {
		t.Errorf("%d names are tested, there are %d", len(names), End-Minute)
	}
	for i, name := range names {
		if got := (Minute + Unit(i)).String(); got != name {
			t.Errorf("got %q, want %q", got, name)
		}
	}
	for unit, want := range map[Unit]string{
		0: "Unit(0)", Total: "total", Total + 1: fmt.Sprintf("Unit(%d)", Total+1),
		255: "Unit(255)",
	} {
		if got := unit.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		rule Rule
		want string // part of the error; "" for none
	}{
		{"unit only", Rule{Unit: Minute}, ""},
		{"zone", Rule{Unit: Week, Zone: time.FixedZone("x", 3600)}, ""},
		{"first anchor", Rule{Unit: Month, Anchor: 1}, ""},
		{"last anchor", Rule{Unit: Month, Anchor: 31}, ""},
		{"zero rule", Rule{}, "Unit(0)"},
		{"unknown unit", Rule{Unit: Total + 1}, fmt.Sprintf("Unit(%d)", Total+1)},
		{"total", Rule{Unit: Total, Zone: time.UTC}, ""},
		{"zone of a total", Rule{Unit: Total, Zone: time.FixedZone("x", 3600)}, "no zone"},
		{"anchor too large", Rule{Unit: Month, Anchor: 32}, "anchor=32"},
		{"anchor negative", Rule{Unit: Month, Anchor: -1}, "anchor=-1"},
		{"anchor of a week", Rule{Unit: Week, Anchor: 1}, "only months"},
		{"the machine's zone", Rule{Unit: Day, Zone: time.Local}, "zone Local"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			err := c.rule.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("Validate(%+v) = %v, want %q", c.rule, err, c.want)
			}
		})
	}
}

func TestLoadZone(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "UTC"} {
		if zone, err := LoadZone(name); zone != time.UTC || err != nil {
			t.Errorf("LoadZone(%q) = %v, %v, want UTC", name, zone, err)
		}
	}
	if zone, err := LoadZone("America/New_York"); err != nil || zone.String() != "America/New_York" {
		t.Errorf("LoadZone(America/New_York) = %v, %v", zone, err)
	}
	for name, want := range map[string]string{
		"Local":            "machine",
		"localtime":        "machine",
		"posixrules":       "machine",
		"right/Asia/Tokyo": "leap seconds",
		"Mars/Olympus":     "unknown time zone",
		"../etc/passwd":    "invalid location name",
		"/etc/localtime":   "invalid location name",
		"Europe":           `"Europe"`,
	} {
		zone, err := LoadZone(name)
		if zone != nil || err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), name) {
			t.Errorf("LoadZone(%q) = %v, %v, want an error with %q and the name", name, zone, err, want)
		}
	}
}
