//go:build !race

package main

const scale = 1
