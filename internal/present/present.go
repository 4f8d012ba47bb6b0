// Package present presents decisions: it turns decisions, states and errors into the answers of
// /v1, and these into words for people. The server sends the answers, the command line prints both.
package present
