//go:build !unix

package sqlitestore_test

import "errors"

func diskChild(string, []string) error { return errors.ErrUnsupported }
