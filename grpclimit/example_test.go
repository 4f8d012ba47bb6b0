package grpclimit_test

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/drawgate/drawgate"
	"github.com/drawgate/drawgate/grpclimit"
	"github.com/drawgate/drawgate/store/memstore"
)

func Example() {
	store := memstore.New(nil)
	defer store.Close()
	limiter, err := drawgate.New(store, drawgate.PerMinute("calls", 2), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	limit, err := grpclimit.New([]grpclimit.Bucket{{Limiter: limiter, Key: grpclimit.ByPeer(nil)}}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = grpc.NewServer(grpc.UnaryInterceptor(limit.Unary), grpc.StreamInterceptor(limit.Stream))

	// What the server does with each call:
	info := &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/List"}
	for range 3 {
		_, err := limit.Unary(context.Background(), nil, info,
			func(context.Context, any) (any, error) { return "orders", nil })
		fmt.Println(status.Code(err))
	}
	// Output:
	// OK
	// OK
	// ResourceExhausted
}
