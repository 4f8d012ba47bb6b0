package engine

import (
	"errors"
	"fmt"
)

var (
	// ErrUnknownPolicy means that there is no policy of this name.
	ErrUnknownPolicy = errors.New("engine: unknown policy")
	// ErrTooMany means that more policies count a request than one take can hold.
	ErrTooMany = errors.New("engine: too many policies for one take")
	// ErrOtherTenant means that a request would count in buckets of a tenant that it must not use.
	ErrOtherTenant = errors.New("engine: the bucket belongs to another tenant")
)

// Error is a mistake in a policy of a configuration, other than those of its limits.
type Error struct {
	Policy string
	Index  int    // position of the policy in the list
	Field  string // "name", "overrides[2].amounts"
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("engine: policy %q: %s: %v", e.Policy, e.Field, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }
