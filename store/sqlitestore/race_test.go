//go:build race

package sqlitestore_test

// raceEnabled says that every access to memory is checked, which makes SQLite some ten times
// slower.
const raceEnabled = true
