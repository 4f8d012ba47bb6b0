// Package engine decides by policies and rules that can be replaced while it runs. Every door of
// Drawgate asks it.
//
// A [Request] says what is known of a caller, and the rules in force find the policies that count
// it; or it names policies and keys itself. All of them are taken as one: granted together or not
// at all. Policies in shadow are evaluated beside, with buckets of their own, and never change the
// answer.
//
// [Engine.Replace] puts another configuration in force at once. Buckets belong to policies by name,
// so nothing that was counted is lost.
package engine
