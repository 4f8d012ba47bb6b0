package chat

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// Conn is a connection that stays open between calls, and is opened again when it was closed. It
// is one caller's.
type Conn struct {
	addr string
	conn net.Conn
	r    *bufio.Reader
	buf  []byte
}

// NewConn returns a Conn to an address. It connects with the first call.
func NewConn(addr string) *Conn { return &Conn{addr: addr, buf: make([]byte, 32<<10)} }

// Close closes the connection. A later call opens another one.
func (c *Conn) Close() {
	if c.conn != nil {
		_ = c.conn.Close() // it is not used any more
		c.conn = nil
	}
}

// Call sends a request, and gives the pieces of the answer's body to each as they come; each may
// be nil. An error means that there was no answer, or not all of it. The end of ctx closes the
// connection.
func (c *Conn) Call(ctx context.Context, request []byte, each func(piece []byte)) (*http.Response, error) {
	if c.conn == nil {
		conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", c.addr)
		if err != nil {
			return nil, err
		}
		c.conn, c.r = conn, bufio.NewReaderSize(conn, 32<<10)
	}
	if ctx.Done() != nil {
		conn := c.conn
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	}
	resp, err := c.call(request, each)
	if err != nil || resp.Close {
		c.Close()
	}
	return resp, err
}

func (c *Conn) call(request []byte, each func(piece []byte)) (*http.Response, error) {
	if _, err := c.conn.Write(request); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close() //nolint:errcheck // it was read to its end
	for {
		n, err := resp.Body.Read(c.buf)
		if n > 0 && each != nil {
			each(c.buf[:n])
		}
		switch {
		case errors.Is(err, io.EOF):
			return resp, nil
		case err != nil:
			return resp, err
		}
	}
}
