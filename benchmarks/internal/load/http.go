package load

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// HTTP asks by POST over connections that stay open.
type HTTP struct {
	addr, path string
	idle       chan *conn
}

type conn struct {
	net.Conn
	r *bufio.Reader
	w []byte
	b []byte
}

// NewHTTP returns a client that keeps up to so many connections.
func NewHTTP(addr, path string, conns int) *HTTP {
	return &HTTP{addr: addr, path: path, idle: make(chan *conn, conns)}
}

// Close ends the connections that are idle.
func (c *HTTP) Close() {
	for {
		select {
		case k := <-c.idle:
			_ = k.Close()
		default:
			return
		}
	}
}

// Ask sends a body, and reports whether the answer begins as an allowed one does.
func (c *HTTP) Ask(ctx context.Context, body []byte) (bool, error) {
	var k *conn
	select {
	case k = <-c.idle:
	default:
		n, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return false, err
		}
		k = &conn{Conn: n, r: bufio.NewReader(n)}
	}
	allowed, err := k.ask(c, body)
	if err != nil {
		_ = k.Close()
		return false, err
	}
	select {
	case c.idle <- k:
	default:
		_ = k.Close()
	}
	return allowed, nil
}

func (k *conn) ask(c *HTTP, body []byte) (bool, error) {
	k.w = append(append(append(append(k.w[:0], "POST "...), c.path...), " HTTP/1.1\r\nHost: "...), c.addr...)
	k.w = append(strconv.AppendInt(append(k.w, "\r\nContent-Type: application/json\r\nContent-Length: "...),
		int64(len(body)), 10), "\r\n\r\n"...)
	if _, err := k.Write(append(k.w, body...)); err != nil {
		return false, err
	}
	status, err := k.r.ReadSlice('\n')
	if err != nil {
		return false, err
	}
	if !bytes.HasPrefix(status, []byte("HTTP/1.1 200")) {
		return false, fmt.Errorf("%s", status)
	}
	size := -1
	for {
		line, err := k.r.ReadSlice('\n')
		if err != nil {
			return false, err
		}
		if len(line) <= 2 {
			break
		}
		name, value, _ := strings.Cut(string(line), ":")
		if strings.EqualFold(name, "Content-Length") {
			if size, err = strconv.Atoi(strings.TrimSpace(value)); err != nil {
				return false, err
			}
		}
	}
	if size < 0 {
		return false, fmt.Errorf("the answer has no Content-Length")
	}
	if cap(k.b) < size {
		k.b = make([]byte, size)
	}
	k.b = k.b[:size]
	if _, err := io.ReadFull(k.r, k.b); err != nil {
		return false, err
	}
	return bytes.HasPrefix(k.b, []byte(`{"allowed":true`)), nil
}
