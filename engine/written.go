package engine

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/drawgate/drawgate/engine/rules"
)

// says returns a rule in a line.
func says(r *rules.Rule) string {
	var b []string
	add := func(name string, v any) {
		if t := written(v); t != "none" {
			b = append(b, name+" "+t)
		}
	}
	add("match", r.Match)
	add("when", r.When)
	add("schedule", r.Schedule)
	add("tenant", r.Tenant)
	add("apply", r.Apply)
	for _, f := range []struct {
		name string
		set  bool
	}{{"exempt", r.Exempt}, {"final", r.Final}, {"shadow", r.Shadow}} {
		if f.set {
			b = append(b, f.name)
		}
	}
	return strings.Join(b, ", ")
}

// written returns a part of a rule as a person would write it; "none" if it is empty.
func written(v any) string {
	var t string
	switch v := v.(type) {
	case []rules.Apply:
		t = applies(v)
	case *rules.Schedule:
		t = schedule(v)
	case rules.Match:
		t = fields(v)
	case bool:
		return fmt.Sprint(v)
	default:
		t = fmt.Sprint(v)
	}
	if t == "" {
		return "none"
	}
	return t
}

func applies(list []rules.Apply) string {
	var b []string
	for i := range list {
		a := &list[i]
		t := a.Policy + " by " + a.Key
		if len(a.Amounts) > 0 {
			t += " amounts " + text(a.Amounts)
		}
		if len(a.Costs) > 0 {
			t += " costs " + text(a.Costs)
		}
		if a.Shadow {
			t += " in shadow"
		}
		b = append(b, t)
	}
	return strings.Join(b, ", ")
}

func schedule(s *rules.Schedule) string {
	if s == nil {
		return ""
	}
	clock := func(d time.Duration) string { return fmt.Sprintf("%02d:%02d", d/time.Hour, d%time.Hour/time.Minute) }
	t := clock(s.From) + "–" + clock(s.To)
	if s.From == 0 && s.To == 0 {
		t = "all day"
	}
	for _, d := range s.Days {
		t += " " + strings.ToLower(d.String()[:3])
	}
	if s.Zone != "" {
		t += " " + s.Zone
	}
	return t
}

// fields returns the conditions that are given.
func fields(m rules.Match) string {
	var b []string
	v := reflect.ValueOf(m)
	for i := range v.NumField() {
		if f := v.Field(i); !f.IsZero() {
			b = append(b, strings.ToLower(v.Type().Field(i).Name)+"="+fmt.Sprint(f.Interface()))
		}
	}
	return strings.Join(b, " ")
}
