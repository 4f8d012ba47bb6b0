package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// floorTable has the settings of Drawgate's table.
const floorTable = `CREATE TABLE f (key text COLLATE "C" PRIMARY KEY, record bytea NOT NULL)
	WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000)`

// floorRecord makes the row about as long as Drawgate's with a rolling window after some seconds
// (row_bytes).
const floorRecord = 200

// floor is the least that takes have to do which share commits: those that come while a transaction
// is under way go together into the next one. It locks and reads the row, decides nothing, and
// writes a row of the same size. It has one key.
type floor struct {
	pool    *pgxpool.Pool
	yield   bool // callers run before it gathers
	queue   chan *floorCall
	stopped chan struct{}
	calls   sync.Pool
	record  []byte
}

type floorCall struct {
	key  string
	err  error
	done chan struct{}
}

// mostFloorCalls is more than the callers of any cell.
const mostFloorCalls = 512

func startFloor(ctx context.Context, pool *pgxpool.Pool, yield bool) *floor {
	f := &floor{
		pool: pool, yield: yield, queue: make(chan *floorCall, mostFloorCalls), stopped: make(chan struct{}),
		record: make([]byte, floorRecord),
	}
	for i := range f.record {
		f.record[i] = byte(i * 31) // so that it cannot be compressed to nothing
	}
	f.calls.New = func() any { return &floorCall{done: make(chan struct{}, 1)} }
	go f.run(ctx)
	return f
}

// stop must come after the last take returned.
func (f *floor) stop() {
	close(f.queue)
	<-f.stopped
}

func (f *floor) take(_ context.Context, key string) (bool, error) {
	c := f.calls.Get().(*floorCall)
	c.key = key
	f.queue <- c
	<-c.done
	err := c.err
	f.calls.Put(c)
	return err == nil, err
}

func (f *floor) run(ctx context.Context) {
	defer close(f.stopped)
	var batch []*floorCall
	for c := range f.queue {
		if f.yield {
			runtime.Gosched()
		}
		batch = append(batch[:0], c)
		for len(batch) < mostFloorCalls && len(f.queue) > 0 {
			batch = append(batch, <-f.queue)
		}
		err := f.transact(ctx, c.key)
		for _, c := range batch {
			c.err = err
			c.done <- struct{}{}
		}
	}
}

// transact takes two round trips.
func (f *floor) transact(ctx context.Context, key string) error {
	conn, err := f.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	b := &pgx.Batch{}
	b.Queue(`BEGIN`)
	b.Queue(`SELECT record, clock_timestamp() FROM f WHERE key = $1 FOR UPDATE`, key)
	if err := conn.SendBatch(ctx, b).Close(); err != nil {
		return err
	}
	b = &pgx.Batch{}
	b.Queue(`UPDATE f SET record = $2 WHERE key = $1`, key, f.record)
	b.Queue(`COMMIT`)
	return conn.SendBatch(ctx, b).Close()
}
