package simulator

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"syscall"
)

// Transport returns a RoundTripper that calls the server in this process, without a network. It
// streams: what the server writes waits until the client reads it, and closing the body of the
// response ends the call. It uses no goroutine but the call's own, so it works in a bubble of
// testing/synctest. Like [http.Transport], it asks for gzip and decompresses it unless the request
// has an Accept-Encoding. It is safe for concurrent use.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ s *Server }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI, in.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:0"
	if in.Host == "" {
		in.Host = r.URL.Host
	}
	decompress := in.Header.Get("Accept-Encoding") == "" && in.Header.Get("Range") == ""
	if decompress {
		in.Header.Set("Accept-Encoding", "gzip")
	}
	pr, pw := io.Pipe()
	w := &pipeWriter{pipe: pw, header: http.Header{}, begun: make(chan struct{})}
	stop := context.AfterFunc(ctx, func() {
		_ = pw.CloseWithError(ctx.Err())
	})
	go func() {
		defer stop()
		defer in.Body.Close() //nolint:errcheck // the request has been read, or nobody wants it
		t.s.ServeHTTP(w, in)
		w.end(ctx.Err())
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		cancel()
		return nil, r.Context().Err()
	}
	if w.aborted() {
		cancel()
		return nil, errClosed
	}
	resp := w.response(r)
	body := &pipeBody{PipeReader: pr, cancel: cancel}
	resp.Body = body
	if decompress && resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
		resp.Body = &gunzip{body: body}
	}
	return resp, nil
}

// pipeBody is the body of a response. Closing it ends the call.
type pipeBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the call.
func (b *pipeBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// gunzip decompresses a body. The reader is made when it is first needed, because making it reads.
type gunzip struct {
	body io.ReadCloser
	zip  *gzip.Reader
	err  error
}

// Read implements [io.Reader].
func (g *gunzip) Read(p []byte) (int, error) {
	if g.zip == nil && g.err == nil {
		g.zip, g.err = gzip.NewReader(g.body)
	}
	if g.err != nil {
		return 0, g.err
	}
	return g.zip.Read(p)
}

// Close ends the call.
func (g *gunzip) Close() error { return g.body.Close() }

// pipeWriter is the ResponseWriter of a call in this process.
type pipeWriter struct {
	pipe   *io.PipeWriter
	header http.Header // the handler's

	once  sync.Once
	begun chan struct{} // closed when the fields below are set
	// Set once, before begun is closed.
	status int
	sent   http.Header
	cut    bool // aborted before the answer began
}

// errClosed is what a client sees of a connection that was closed before the answer.
var errClosed = fmt.Errorf("simulator: the connection was closed before the answer: %w", io.EOF)

// errReset is what a client sees of a connection that was reset.
var errReset = fmt.Errorf("simulator: the connection was cut by a fault: %w", syscall.ECONNRESET)

// Header implements [http.ResponseWriter].
func (w *pipeWriter) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *pipeWriter) WriteHeader(status int) { w.begin(status, false) }

func (w *pipeWriter) begin(status int, cut bool) {
	w.once.Do(func() {
		w.status, w.sent, w.cut = status, w.header.Clone(), cut
		close(w.begun)
	})
}

// Write implements [http.ResponseWriter]. It waits until the client has read everything.
func (w *pipeWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK, false)
	if len(p) == 0 {
		return 0, nil // the pipe would wait for a reader
	}
	return w.pipe.Write(bytes.Clone(p))
}

// FlushError is what [http.ResponseController] looks for. Nothing is kept back.
func (w *pipeWriter) FlushError() error {
	w.begin(http.StatusOK, false)
	return nil
}

// abort closes the connection.
func (w *pipeWriter) abort() {
	w.begin(0, true)
	_ = w.pipe.CloseWithError(errReset) // it never fails
}

// end ends the answer, if it was not aborted. err is why it is not complete.
func (w *pipeWriter) end(err error) {
	w.begin(http.StatusOK, false)
	_ = w.pipe.CloseWithError(err) // it never fails, and changes nothing after abort
}

// aborted reports whether there is no answer. The answer must have begun.
func (w *pipeWriter) aborted() bool { return w.cut }

// response returns the answer without its body. The answer must have begun.
func (w *pipeWriter) response(r *http.Request) *http.Response {
	resp := &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, ContentLength: -1, Request: r,
	}
	if n, err := contentLength(w.sent); err == nil {
		resp.ContentLength = n
	}
	return resp
}

func contentLength(h http.Header) (n int64, err error) {
	text := h.Get("Content-Length")
	if text == "" {
		return 0, errors.New("simulator: no length")
	}
	_, err = fmt.Sscanf(text, "%d", &n)
	return n, err
}
