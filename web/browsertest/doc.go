// Package browsertest tests the server's own page in a real browser, against a real server. It is a
// module of its own, so that no program of Drawgate depends on a driver of browsers.
package browsertest
