//go:build race

package main

// scale divides the month of tasks, because under the race detector a whole month takes a minute.
const scale = 10

// program is the memory of a process that Go's memory limit does not bound. The race detector needs
// much of it.
const program = 320 << 20
