package rules

import "fmt"

// Error is a mistake in a rule, or an error in its evaluation. It never shows the value of an
// attribute.
type Error struct {
	Rule  int    // position in the list
	Name  string // of the rule; may be empty
	Field string // "match.path", "when", "apply[0].key"
	Err   error
}

func (e *Error) Error() string {
	name := ""
	if e.Name != "" {
		name = fmt.Sprintf(" (%q)", e.Name)
	}
	return fmt.Sprintf("rules: rule %d%s: %s: %v", e.Rule+1, name, e.Field, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
