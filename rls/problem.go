package rls

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// ConfigError is one mistake in a configuration file.
type ConfigError struct {
	File    string // as given to [ParseConfig]
	Line    int    // from 1; 0 where there is no line
	Column  int    // in characters, from 1
	Message string // what is wrong, and how to correct it
}

// Error returns the mistake with its position.
func (e *ConfigError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("rls: %s: %s", e.File, e.Message)
	}
	return fmt.Sprintf("rls: %s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
}

// ConfigErrors holds all mistakes that were found, by file and position.
type ConfigErrors []*ConfigError

// Error returns one mistake per line.
func (e ConfigErrors) Error() string {
	texts := make([]string, len(e))
	for i := range e {
		texts[i] = e[i].Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap returns the mistakes as errors.
func (e ConfigErrors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}

// maxProblems is how many mistakes of a file are reported. A hostile file could have hundreds of
// thousands.
const maxProblems = 100

func (e ConfigErrors) sorted() ConfigErrors {
	slices.SortStableFunc(e, func(a, b *ConfigError) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return e
}
