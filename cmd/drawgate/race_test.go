//go:build race

package main

// scale divides the month of tasks: under the race detector the whole of it takes a minute.
const scale = 10

// program is what a process takes beside what Go's memory limit bounds: here the race detector has
// a lot of its own.
const program = 320 << 20
