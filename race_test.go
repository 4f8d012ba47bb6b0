//go:build race

package drawgate_test

const raceEnabled = true
