// Package present says what was decided: it turns decisions, states and errors into the answers of
// /v1, and those into words for people. The server sends the answers, the command line prints both.
package present
