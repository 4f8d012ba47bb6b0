// Package awsbody mends a race in the AWS SDK, by which a call that was carried out fails.
//
// The SDK closes a request's body when the answer's header is there. net/http may look at that
// moment whether the body has more than it announced. It asks by the body's WriteTo, which answers
// io.EOF as an error once it is closed (smithy-go 1.28), so net/http closes the connection, while
// the answer is being read.
package awsbody

import (
	"context"
	"io"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// WithoutWriteTo is one of a client's APIOptions: requests' bodies have no WriteTo.
func WithoutWriteTo(stack *middleware.Stack) error {
	return stack.Build.Add(middleware.BuildMiddlewareFunc("drawgate: WithoutWriteTo", hide), middleware.After)
}

// body is what a request's body may do: it is sent again from its start.
type body struct{ io.ReadSeeker }

func hide(ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler) (middleware.BuildOutput,
	middleware.Metadata, error,
) {
	if r, ok := in.Request.(*smithyhttp.Request); ok {
		if s, ok := r.GetStream().(io.ReadSeeker); ok {
			r, err := r.SetStream(body{s})
			if err != nil {
				return middleware.BuildOutput{}, middleware.Metadata{}, err
			}
			in.Request = r
		}
	}
	return next.HandleBuild(ctx, in)
}
