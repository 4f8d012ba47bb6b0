//go:build !unix

package redistest

import "errors"

func hang(int) error   { return errors.ErrUnsupported }
func resume(int) error { return errors.ErrUnsupported }
