package server

import (
	"context"

	"github.com/drawgate/drawgate/api"
	"github.com/drawgate/drawgate/engine"
	"github.com/drawgate/drawgate/internal/present"
)

// refused answers a take that failed: with a refusal if it is one.
func (s *Server) refused(ctx context.Context, req *engine.Request, res *engine.Result, err error) (api.Answer,
	*api.Problem,
) {
	out, err := present.RefusalOf(ctx, req, res, err)
	if err != nil {
		return api.Answer{}, s.fail(err)
	}
	return out, nil
}
