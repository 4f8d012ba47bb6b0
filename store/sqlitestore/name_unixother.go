//go:build unix && !linux

package sqlitestore

// mountPoint cannot check this here.
func mountPoint(string) bool { return false }
