package client

import (
	"errors"
	"fmt"

	"github.com/drawgate/drawgate/api"
)

// ErrGone means that a reservation is no longer open: it was settled, its bucket was reset, or its
// hold ended, and then it counts as used. The holder must stop.
var ErrGone = errors.New("client: the reservation is gone")

// Error means that a call had no usable answer.
type Error struct {
	Op     string // "POST /v1/take"
	Server string // its address
	Maybe  bool   // it may have been carried out anyway
	Err    error
}

func (e *Error) Error() string {
	if e.Maybe {
		return fmt.Sprintf("client: %s of %s: no answer, and it may have been carried out: %v", e.Op, e.Server, e.Err)
	}
	return fmt.Sprintf("client: %s of %s: %v", e.Op, e.Server, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Code returns the code of the server's problem, or "" if err is not one.
func Code(err error) api.Code {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p.Code
	}
	return ""
}
