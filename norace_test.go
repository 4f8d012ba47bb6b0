//go:build !race

package drawgate_test

const raceEnabled = false
