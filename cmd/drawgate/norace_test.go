//go:build !race

package main

const scale = 1

// program is the memory of a process that Go's memory limit does not bound: most of it is the
// program itself.
const program = 16 << 20
