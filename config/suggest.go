package config

import (
	"fmt"
	"slices"
	"strings"
)

// didYouMean returns a hint that names the most similar candidate, and that candidate. Both are
// empty if none is similar.
func didYouMean(got string, candidates []string) (hint, candidate string) {
	const longest = 64 // longer names are not typing mistakes, and would take long to compare
	if len(got) > longest {
		return "", ""
	}
	best := 1 + min(2, len(got)/2)
	for _, c := range candidates {
		if d := distance(strings.ToLower(got), strings.ToLower(c)); d < best {
			best, candidate = d, c
		}
	}
	if candidate == "" {
		return "", ""
	}
	return fmt.Sprintf("did you mean %q?", candidate), candidate
}

// distance is the number of insertions, deletions, replacements and swaps of neighbours that make a
// into b.
func distance(a, b string) int {
	before, previous, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, previous, row = previous, row, before
		row[0] = i + 1
		for j := range len(b) {
			replace := previous[j]
			if a[i] != b[j] {
				replace++
			}
			row[j+1] = min(replace, previous[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}

// otherWords maps the names that other rate limiters use to our keys.
var otherWords = map[string]string{
	"limit": "amount", "max": "amount", "count": "amount", "requests": "amount", "quota": "amount", "capacity": "burst",
	"tz": "zone", "timezone": "zone", "type": "", "kind": "", "window": "", "period": "", "per": "", "interval": "", "rate": "",
	"reserve": "headroom", "safety_margin": "headroom", "timeout": "up_to", "max_wait": "up_to", "length": "queue",
	"key_prefix": "prefix", "database": "store", "storage": "store", "limits": "policies", "policy": "policies", "day": "anchor",
	"amounts": "limits", "cidr": "ips", "cidrs": "ips", "networks": "ips", "attributes": "attrs", "labels": "attrs", "if": "when", "condition": "when",
	"skip": "exempt", "ignore": "exempt", "allow": "exempt", "stop": "final", "dry_run": "shadow", "shadow_mode": "shadow", "on_error": "fallback",
	"failure_mode": "fallback", "address": "listen", "bind": "listen", "port": "listen", "apikeys": "api_keys", "replicas": "instances",
}

const aboutKinds = "a limit has one of bucket: PERIOD (a rate with burst), rolling: WINDOW (a hard cap), calendar: day, concurrency: N"

// unknownKey returns a hint about a key that is not among known, and the key that was probably
// meant.
func unknownKey(got string, known []string) (hint, meant string) {
	if hint, meant = didYouMean(got, known); meant != "" {
		return hint, meant
	}
	if word, ok := otherWords[strings.ToLower(got)]; ok {
		switch {
		case word == "" && slices.Contains(known, "rolling"):
			return aboutKinds, "rolling"
		case slices.Contains(known, word):
			return fmt.Sprintf("this is called %q here", word), word
		}
	}
	return "known are " + strings.Join(known, ", "), ""
}
