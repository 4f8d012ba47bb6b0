// Package engine decides by policies and rules that can be replaced while it runs. All of
// Drawgate's servers and middleware use it.
//
// A [Request] describes a caller, and the rules in force find the policies that count it; or the
// request names policies and keys itself. They are one take: all of them are granted, or none.
// Policies in shadow are evaluated separately, with their own buckets, and never change the answer.
//
// [Engine.Replace] puts another configuration in force at once. Buckets belong to policies by name,
// so nothing that was counted is lost.
package engine
