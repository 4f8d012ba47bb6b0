//go:build !linux

package sqlitestore_test

import "errors"

func mountSmall(string) error    { return errors.ErrUnsupported }
func mountReadOnly(string) error { return errors.ErrUnsupported }
func remount(string, bool) error { return errors.ErrUnsupported }
func unmount(string) error       { return nil }
