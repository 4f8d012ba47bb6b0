//go:build !linux

package pgtest

func memory() string { return "" }
