package rls_test

import (
	"bytes"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/drawgate/drawgate/rls"
)

// Frames of HTTP/2 (RFC 9113, section 4).
const (
	frameHeaders, frameSettings, frameContinuation = 0x1, 0x4, 0x9
	flagEndHeaders                                 = 0x4

	preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{
		byte(n >> 16), byte(n >> 8), byte(n), kind, flags, byte(stream >> 24), byte(stream >> 16),
		byte(stream >> 8), byte(stream),
	}
	return append(head, payload...)
}

// greeting is how a client begins.
func greeting() []byte { return append([]byte(preface), frame(frameSettings, 0, 0, nil)...) }

// field is a header as HPACK has it without a table and Huffman's code; value has less than 127
// bytes.
func field(name, value string) []byte {
	return append(append(append([]byte{0, byte(len(name))}, name...), byte(len(value))), value...)
}

// opened begins a call, of which nothing but the headers is sent.
func opened(stream uint32) []byte {
	return frame(frameHeaders, flagEndHeaders, stream, bytes.Join([][]byte{
		field(":method", "POST"), field(":scheme", "http"), field(":authority", "localhost"),
		field(":path", "/"+rls.ServiceName+"/ShouldRateLimit"), field("content-type", "application/grpc"),
		field("te", "trailers"),
	}, nil))
}

// endless sends headers that do not end: 32 MiB of a value. The error is what stops it.
func endless(w io.Writer) error {
	const size = 16 << 10 // the largest frame
	part := bytes.Repeat([]byte("x"), size)
	copy(part, "\x00\x01x\x7f\x80\x80\x80\x10") // a literal, its name of one byte, its value of 32 MiB and 127 bytes
	_, err := w.Write(frame(frameHeaders, 0, 1, part))
	rest := frame(frameContinuation, 0, 1, bytes.Repeat([]byte("x"), size))
	for i := 0; err == nil && i < 2<<10; i++ {
		_, err = w.Write(rest)
	}
	return err
}

// Clients that do not get on do not disturb others: they say nothing, half of a greeting, headers
// without a body or without an end, or never read.
func TestSlowClientsDoNotDisturbOthers(t *testing.T) {
	t.Parallel()
	s, _ := service(t, memory(t),
		config(t, "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: hour, requests_per_unit: 1000}}\n"), nil)
	l := loopback(t)
	listen(t, l, s, nil)
	connect := func(text []byte) net.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := conn.Write(text); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	var bodies, pings []byte
	for i := range 100 {
		bodies = append(bodies, opened(uint32(2*i+1))...)
		pings = append(pings, frame(0x6, 0, 0, make([]byte, 8))...) // each wants an answer, which nobody reads
	}
	var wg sync.WaitGroup
	for range 10 {
		connect(nil)
		connect([]byte(preface[:10]))
		connect(greeting())
		connect(append(greeting(), bodies...))
		connect(append(greeting(), pings...))
		conn := connect(greeting())
		wg.Go(func() {
			if err := endless(conn); err == nil {
				t.Error("headers without an end were read")
			}
		})
	}
	c := dial(t, l.Addr().String(), nil)
	took := make([]time.Duration, 100)
	for i := range took {
		begin := time.Now()
		if a := answered(t, c, request("d", descriptor("user=ann"))); a.GetOverallCode() != ok {
			t.Error(a)
		}
		took[i] = time.Since(begin)
	}
	slices.Sort(took)
	if most := took[len(took)*9/10]; most > 2*time.Second { // a busy machine may keep some of them
		t.Errorf("a tenth of the others took %v and more", most)
	}
	wg.Wait()
}

func TestHugeMetadataAreRefused(t *testing.T) {
	t.Parallel()
	s, _ := service(t, memory(t), config(t, users), nil)
	c, _ := serve(t, s)
	for size, want := range map[int]codes.Code{8 << 10: codes.OK, 64 << 10: codes.Internal} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "cookie", string(bytes.Repeat([]byte("c"), size)))
		if a, err := c.ShouldRateLimit(ctx, request("d", descriptor("user=ann"))); status.Code(err) != want {
			t.Errorf("%d bytes: %v, %v, want %v", size, a, err, want)
		}
	}
	if a := answered(t, c, request("d", descriptor("user=ann"))); a.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("what was refused spent something: %v", a)
	}
}

// Half-open connections do not pile up: one that says nothing ends with the time for its greeting,
// one that has gone silent when it does not answer.
func TestHalfOpenConnectionsAreCutOff(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name        string
		text        []byte
		least, most time.Duration
	}{
		{"nothing", nil, time.Second, 10 * time.Second},
		{"half of a greeting", []byte(preface[:10]), time.Second, 10 * time.Second},
		{"a greeting", greeting(), time.Minute, 3 * time.Minute},
		{"a call without a body", append(greeting(), opened(1)...), time.Minute, 3 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, _ := service(t, memory(t), config(t, users), nil)
			l := bufconn.Listen(1 << 20)
			listen(t, l, s, nil)
			conn, err := l.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			begin := time.Now()
			if _, err := conn.Write(c.text); err != nil {
				t.Fatal(err)
			}
			_, err = io.Copy(io.Discard, conn)
			if d := time.Since(begin); d < c.least || d > c.most {
				t.Errorf("%s: cut off after %v, %v, want from %v to %v", c.name, d, err, c.least, c.most)
			}
		})
	}
}
