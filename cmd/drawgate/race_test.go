//go:build race

package main

// scale divides the month of tasks: under the race detector the whole of it takes a minute.
const scale = 10
