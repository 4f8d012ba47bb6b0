package config

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

func networksNode(list []netip.Prefix) (n node) {
	for _, p := range list {
		n.list = append(n.list, node{scalar: `"` + p.String() + `"`})
	}
	return n
}

func conditionsNode(list map[string]string) node {
	var b mapping
	for _, name := range slices.Sorted(maps.Keys(list)) {
		b.add(quote(name), quote(list[name]))
	}
	return node{pairs: b}
}

func daysNode(list []time.Weekday) node {
	var days []string
	for _, d := range list {
		days = append(days, strings.ToLower(d.String()[:3]))
	}
	return texts(days)
}

func formatClock(t time.Duration) string {
	return fmt.Sprintf("%q", fmt.Sprintf("%02d:%02d", t/time.Hour, t%time.Hour/time.Minute))
}
