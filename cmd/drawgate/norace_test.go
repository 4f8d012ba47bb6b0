//go:build !race

package main

const scale = 1

// program is what a process takes beside what Go's memory limit bounds: most of it is the program
// itself.
const program = 16 << 20
