// Package model is the obvious version of Drawgate's arithmetic, for tests.
//
// It keeps a plain list of everything that was admitted, and finds what is used by adding it up; a
// bucket's level is a big integer. When a refused take would fit is found by asking "would it fit
// at t?" for one t after the other (by bisection), with the same question that decides. Nothing is
// packed or cached, and nothing is shared with package record but its plain types. What record
// decides must agree with it.
//
// [Decide], [Settle], [Renew], [Charge], [Refund] and [Peek] work on a [Ledger] as their namesakes
// do on a record. [Store] puts them behind drawgate.Store, so that a real store can be compared
// with it step by step.
//
// Nothing is rounded but a bucket's level where its rate changed, or something was given back after
// it did: up to a whole part of a unit.
package model
