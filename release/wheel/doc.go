// Package wheel writes the Python packages: those of drawgate-server, which carry the program, one
// for each platform, and those of the client. Hatchling would do for the client as well, and does
// where people install it from its source. But a release needs no Python, and its bytes depend on
// no version of one.
package wheel
