package redisstore

import (
	"embed"
	"fmt"
	"strings"
	"sync"

	"github.com/drawgate/drawgate/internal/pattern"
)

//go:embed script/*.lua
var files embed.FS

// order is the one in which the script's files are joined: none uses a local of a later one. A
// script has at most 200 locals, and a function at most 60 of those around it.
var order = []string{
	"head", "short", "cell", "history", "several", "batch", "reset", "record", "calendar", "bucket", "rolling",
	"limit", "recover", "past", "open", "write", "view", "line", "settle", "pause", "refund", "fits", "replay", "ahead",
	"lost",
	"take", "decide",
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
	"reservation": "c8c8dddBIc0B", // 1: a lease, 2^k: part k passed a ticket; the number of its parts is last
	"part":        "c8dddB",
	"size":        "H",
	"ended":       "c8dIc0B", // a reservation whose hold has ended: grant, until when it is remembered, id, parts
	"number":      "d",       // of a list
	"epochs":      "BB",      // a history: format and flags
	"pauses":      "ddd",     // when the last pause was set and until when, and when one was ended last
	"mark":        "c16",
	"epoch":       "dd",   // the last write before it, and until when what was written before it may count
	"grant":       "c8dB", // that was recovered: until when it is remembered, and whether it is done
	// a line: format, when its last ticket ends, tickets
	"line":    "BdB",
	"waiting": "c8ddBB", // a ticket: number, arrival, end, priority, claims
	"claim":   "c8d",    // of units of a limit
	"passed":  "B",      // limits of which units passed tickets
	"passing": "c8c8dB", // one of them: the first ticket, what passed it, until when and how many count
	// what is asked of a limit, after identity and kind
	"flags":        "B",
	"x":            "x", // the same, if it does not matter
	"ask-bucket":   "dddddd",
	"ask-rolling":  "ddddd",
	"ask-calendar": "ddd",
	"ask-slots":    "dd",
	"count":        "H", // of windows
	"window":       "dd",
	"share":        "Bd", // from this priority on, the most that may be used
	// further arguments of an operation
	"take":    "c8c8dddB",
	"ticket":  "c8dddBBB", // number, arrival, waited, patience, flags, limits: two bytes each; who comes next
	"next":    "c8ddBBB",  // each of these: number, arrival, waited, priority, bucket, limits
	"renew":   "c8d",
	"charge":  "dd",
	"pause":   "ddd", // for how long, until when, when it was set; and the reason
	"unpause": "dd",
	"recover": "c8H", // parts: each a window, and a number per limit
	"refund":  "d",
	// a batch
	"group":  "c1HB", // operation, requests, buckets
	"of":     "HH",   // a bucket and what is asked of it, or an ID and further arguments
	"whom":   "H",    // what the caller knows
	"text":   "Hc0",
	"past":   "Bdc8", // what is told of a history: flags, last write, generation
	"plain":  "BddH", // answer: 1, used before, instant, allowed
	"others": "BH",   // answer: 0, how many answers are among the others
}

// body is the script. It is joined when it is first used, and not at the start of each program.
var body = sync.OnceValue(join)

var named = pattern.New(`F'([^']*)'`)

// join returns the script.
func join() string {
	var text strings.Builder
	for _, name := range order {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) //nolint:forbidigo // the name is wrong
		}
		text.WriteString(named().ReplaceAllStringFunc(string(part), func(use string) string {
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
