// Package load asks servers, with as little work of its own as it can: generator and server share
// the machine.
package load

import (
	"context"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protowire"
)

// raw passes messages that are encoded already.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }

func (raw) Unmarshal(d []byte, v any) error {
	p := v.(*[]byte)
	*p = append((*p)[:0], d...)
	return nil
}

func (raw) Name() string { return "proto" }

const method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

// Envoy encodes a rate limit request of one descriptor with one entry.
func Envoy(domain, key, value string) []byte {
	entry := text(text(nil, 1, key), 2, value)
	return message(text(nil, 1, domain), 2, message(nil, 1, entry))
}

func text(b []byte, n protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), s)
}

func message(b []byte, n protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), m)
}

// GRPC spreads calls over a few connections.
type GRPC struct {
	conns []*grpc.ClientConn
	next  atomic.Uint64
}

// NewGRPC returns a client of a rate limit service.
func NewGRPC(addr string, conns int) (*GRPC, error) {
	c := &GRPC{}
	for range conns {
		cc, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.ForceCodec(raw{})), grpc.WithDisableRetry(),
			grpc.WithDisableServiceConfig())
		if err != nil {
			return nil, err
		}
		c.conns = append(c.conns, cc)
	}
	return c, nil
}

// Close ends the connections.
func (c *GRPC) Close() {
	for _, cc := range c.conns {
		_ = cc.Close()
	}
}

// Ask sends a request, and reports whether the answer is OK.
func (c *GRPC) Ask(ctx context.Context, req []byte) (bool, error) {
	var answer []byte
	conn := c.conns[c.next.Add(1)%uint64(len(c.conns))]
	if err := conn.Invoke(ctx, method, &req, &answer); err != nil {
		return false, err
	}
	switch code := overall(answer); code {
	case 1:
		return true, nil
	case 2:
		return false, nil
	default:
		return false, fmt.Errorf("overall_code %d", code)
	}
}

// overall returns the overall code of an answer.
func overall(b []byte) uint64 {
	for len(b) > 0 {
		n, t, size := protowire.ConsumeTag(b)
		if size < 0 {
			return 0
		}
		b = b[size:]
		if n == 1 && t == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(b)
			return v
		}
		if size = protowire.ConsumeFieldValue(n, t, b); size < 0 {
			return 0
		}
		b = b[size:]
	}
	return 0
}
