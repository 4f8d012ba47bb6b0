// Package from runs what docs/from shows of Go libraries: the code before, and the code after.
package from
