package redisstore

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed script/*.lua
var files embed.FS

// order is the one in which the script's files are joined: none uses a local of a later one. A
// script has at most 200 locals, and a function at most 60 of those around it.
var order = []string{
	"head", "short", "cell", "several", "batch", "record", "calendar", "bucket", "rolling", "limit", "open", "write",
	"view", "settle", "pause", "refund", "fits", "replay", "ahead", "take", "decide",
}

// formats are those of what is stored and of what the script is asked, for struct.pack: a file of
// the script names them, F'head whole bucket'. wire.go has the same in Go, field by field.
var formats = map[string]string{
	// a bucket's header: format, flags, latest instant, instant until which its TTL is set
	"head":   "BBdd",
	"open":   "ddd",  // open reservations: their number, when the first one ends and the last one
	"paused": "dHc0", // until when, and the reason
	// its limits
	"limit":    "c8B", // identity and kind
	"whole":    "c9",  // the same as one string
	"bucket":   "dddd",
	"rolling":  "dddddddd",
	"calendar": "ddddd",
	"held":     "ddd",
	"ahead":    "d",
	// its other fields
	"entry":       "ddd",          // of a rolling limit: first and last instant, units
	"reservation": "c8c8dddBIc0B", // the number of its parts is last
	"part":        "c8dddB",
	"number":      "d", // of a list
	// what is asked of a limit, after identity and kind
	"flags":        "B",
	"x":            "x", // the same, if it does not matter
	"ask-bucket":   "dddddd",
	"ask-rolling":  "ddddd",
	"ask-calendar": "ddd",
	"ask-slots":    "dd",
	"count":        "H", // of windows
	"window":       "dd",
	// further arguments of an operation
	"take":    "c8c8dddB",
	"renew":   "c8d",
	"charge":  "dd",
	"pause":   "dd", // and the reason
	"unpause": "d",
	"refund":  "d",
	// a batch
	"group":  "c1HB", // operation, requests, buckets
	"of":     "HH",   // a bucket and what is asked of it, or an ID and further arguments
	"plain":  "BddH", // answer: 1, used before, instant, allowed
	"others": "BH",   // answer: 0, how many answers are among the others
}

var body = join()

var named = regexp.MustCompile(`F'([^']*)'`)

// join returns the script.
func join() string {
	var text strings.Builder
	for _, name := range order {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) //nolint:forbidigo // the name is wrong
		}
		text.WriteString(named.ReplaceAllStringFunc(string(part), func(use string) string {
			var format strings.Builder
			for word := range strings.FieldsSeq(use[len("F'") : len(use)-1]) {
				if formats[word] == "" {
					panic(fmt.Sprintf("script/%s.lua: no format is called %q", name, word)) //nolint:forbidigo // a mistake in this package
				}
				format.WriteString(formats[word])
			}
			return "'<" + format.String() + "'"
		}))
		text.WriteByte('\n')
	}
	return text.String()
}
