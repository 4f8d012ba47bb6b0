// Package lambdatest runs functions in tests as AWS Lambda does: with its Runtime API and its
// Extensions API, and with processes that stand still. It needs Linux.
package lambdatest
