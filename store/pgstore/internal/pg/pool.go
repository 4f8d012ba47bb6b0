package pg

import (
	"context"
	"time"

	"github.com/jackc/puddle/v2"
)

// Pool has connections for anybody's use. It is safe for concurrent use.
type Pool struct {
	conns   *puddle.Pool[*Conn]
	maxLife time.Duration
	maxIdle time.Duration
}

// PoolConfig says how a pool makes and keeps connections.
type PoolConfig struct {
	Max     int32         // connections
	MaxLife time.Duration // how old one may become before it is closed after its use
	MaxIdle time.Duration // how long one may be unused before Trim closes it
	Connect func(context.Context) (*Conn, error)
}

// closeTime is how long the end of a connection may take.
const closeTime = 5 * time.Second

// NewPool returns a pool without connections. Max is at least 1.
func NewPool(cfg PoolConfig) (*Pool, error) {
	conns, err := puddle.NewPool(&puddle.Config[*Conn]{MaxSize: cfg.Max, Constructor: cfg.Connect, Destructor: end})
	return &Pool{conns: conns, maxLife: cfg.MaxLife, maxIdle: cfg.MaxIdle}, err
}

// end closes a connection, and waits until its socket is closed.
func end(c *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	_ = c.raw.Close(ctx) // nobody uses it any more
	select {
	case <-c.raw.CleanupDone():
	case <-ctx.Done():
	}
}

// Acquire waits for a connection. Release gives it back. It may have been lost while it was unused:
// who is the first to notice asks for another one after Reset.
func (p *Pool) Acquire(ctx context.Context) (*Conn, error) {
	place, err := p.conns.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	c := place.Value()
	c.pool, c.place = p, place
	return c, nil
}

// Release gives a connection back to its pool. One that is within a transaction is closed.
func (c *Conn) Release() {
	place := c.place
	c.place = nil
	if c.pool.old(place) || c.raw.IsClosed() || c.raw.IsBusy() || c.raw.TxStatus() != idle {
		place.Destroy()
	} else {
		place.Release()
	}
}

func (p *Pool) old(place *puddle.Resource[*Conn]) bool {
	return time.Since(place.CreationTime()) > p.maxLife
}

const idle = 'I' // outside of a transaction

// Trim closes connections that were unused for long, or are old.
func (p *Pool) Trim() {
	for _, place := range p.conns.AcquireAllIdle() {
		if place.IdleDuration() > p.maxIdle || p.old(place) {
			place.Destroy()
		} else {
			place.ReleaseUnused()
		}
	}
}

// Reset closes all connections; those that are in use when they are given back.
func (p *Pool) Reset() { p.conns.Reset() }

// Close closes all connections, and waits for those that are in use.
func (p *Pool) Close() { p.conns.Close() }
