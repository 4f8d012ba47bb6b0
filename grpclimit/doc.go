// Package grpclimit has server interceptors for google.golang.org/grpc. They take units from
// drawgate buckets for each call before its handler runs. A refused call gets RESOURCE_EXHAUSTED,
// with RetryInfo and QuotaFailure as details.
//
//	lim, err := drawgate.New(memstore.New(nil), drawgate.PerMinute("calls", 10), nil)
//	limit, err := grpclimit.New([]grpclimit.Bucket{{Limiter: lim, Key: grpclimit.ByPeer(nil)}}, nil)
//	grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))
//
// Several buckets are one atomic take: a call that one of them refuses costs nothing in the others.
// If a policy has a concurrency limit, units are held and renewed while the handler runs or the
// stream is open, and given back when it ends, however it ends.
package grpclimit
