//go:build unix && !linux

package sqlitestore

// mountPoint is not known here.
func mountPoint(string) bool { return false }
