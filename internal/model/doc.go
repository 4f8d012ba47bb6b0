// Package model is a simple version of Drawgate's arithmetic, for tests.
//
// It keeps a plain list of everything that was admitted, and computes use by adding it up; a
// bucket's level is a big integer. To find when a refused take would fit, it asks "would it fit at
// t?" for different t (by bisection), with the same code that decides. Nothing is packed or cached,
// and it shares nothing with package record but its plain types. Package record must decide the
// same.
//
// [Decide], [Settle], [Renew], [Charge], [Refund] and [Peek] work on a [Ledger] as the functions of
// the same names do on a record. [Store] wraps them as a store.Store, so that a real store can
// be compared with it step by step.
//
// Nothing is rounded except a bucket's level after a change of its rate, or after units were given
// back since: up to a whole part of a unit.
package model
