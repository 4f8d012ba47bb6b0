// Package shadow marks store calls that are made for shadows. Their decisions are compared, and
// nobody acts on them. Code that counts decisions leaves them out.
package shadow

import "context"

type key struct{}

// With marks the calls that are made with the returned context.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, true) }

// Is reports whether a call is marked.
func Is(ctx context.Context) bool { return ctx.Value(key{}) != nil }
