//go:build !race

package sqlitestore_test

// raceEnabled says that every access to memory is checked.
const raceEnabled = false
