// Package pattern compiles regular expressions when they are first used.
//
// The program has dozens of them, and a command needs a few: compiling all of them would be a third
// of the time that a command takes to start.
package pattern

import (
	"regexp"
	"sync"
)

// New returns what compiles an expression, once. It panics at its first use if that fails.
func New(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
