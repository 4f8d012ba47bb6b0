package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/drawgate/drawgate/internal/similar"
)

// didYouMean returns a hint that names the most similar candidate, and that candidate. Both are
// empty if none is similar.
func didYouMean(got string, candidates []string) (hint, candidate string) {
	const longest = 64 // longer names are not typing mistakes, and would take long to compare
	if len(got) > longest {
		return "", ""
	}
	if candidate = similar.To(got, candidates, min(2, len(got)/2)); candidate == "" {
		return "", ""
	}
	return fmt.Sprintf("did you mean %q?", candidate), candidate
}

// otherWords maps the names that other rate limiters use to our keys.
var otherWords = map[string]string{
	"limit": "amount", "max": "amount", "count": "amount", "requests": "amount", "quota": "amount", "capacity": "burst",
	"tz": "zone", "timezone": "zone", "type": "", "kind": "", "window": "", "period": "", "per": "", "interval": "",
	"rate":    "",
	"reserve": "headroom", "safety_margin": "headroom", "timeout": "up_to", "max_wait": "up_to", "length": "queue",
	"key_prefix": "prefix", "database": "store", "storage": "store", "limits": "policies", "policy": "policies",
	"day":     "anchor",
	"amounts": "limits", "cidr": "ips", "cidrs": "ips", "networks": "ips", "attributes": "attrs", "labels": "attrs",
	"if": "when", "condition": "when",
	"skip": "exempt", "ignore": "exempt", "allow": "exempt", "stop": "final", "dry_run": "shadow",
	"shadow_mode": "shadow", "on_error": "fallback",
	"failure_mode": "fallback", "address": "listen", "bind": "listen", "port": "listen", "apikeys": "api_keys",
	"replicas": "instances",
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
	if place := places[got]; place != "" && !slices.Contains(known, got) {
		return fmt.Sprintf("%q belongs %s", got, place), ""
	}
	return "known keys: " + strings.Join(known, ", "), ""
}

// places says where keys about outages belong, which are easily put elsewhere.
var places = map[string]string{
	"fallback": "in a policy or in one of its limits", "start": "in a policy, or at the top of the file",
	"ready":     "in server",
	"at_least":  "in instances: {auto: true, at_least: 3}",
	"instances": atTop, "store_mark": atTop, "store_batches": atTop, "store_recovery": atTop,
	"store_timeout": atTop, "warn_every": atTop,
}

const atTop = "at the top of the file"
