// Package deploy holds example configurations of the proxies that ask Drawgate. Its tests run each
// of them for real.
package deploy
