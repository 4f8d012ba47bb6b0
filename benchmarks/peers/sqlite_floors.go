package peers

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

func sqliteFloors() []lim.SQLite {
	return []lim.SQLite{
		{Name: "floor-fdatasync", Alg: "the disk: 4 KiB over and over in 4 MiB, fdatasync per decision", New: newDisk},
		{
			Name: "floor-group-commit", Alg: "bare group commit, state and history row per decision, state cached",
			New: func(path string, s lim.Spec) (lim.Limiter, error) {
				return newGroupCommit(path, s, false)
			},
		},
		{
			Name: "floor-group-commit-yield", Alg: "the same, which lets callers run before it gathers",
			New: func(path string, s lim.Spec) (lim.Limiter, error) {
				return newGroupCommit(path, s, true)
			},
		},
		{
			Name: "floor-tx-per-take", Alg: "one transaction per take: read state, write state and history",
			New: newTxPerTake,
		},
	}
}

// sqliteSchema: a state row as of a bucket limit, and a history that is only appended to and has no
// index.
const sqliteSchema = `
CREATE TABLE state(key INTEGER PRIMARY KEY, record BLOB NOT NULL);
CREATE TABLE history(ts INTEGER NOT NULL, key INTEGER NOT NULL, units BLOB NOT NULL, id TEXT NOT NULL);`

const recordBytes = 80 // a header and one limit

// sqliteFile is one connection with prepared statements; one goroutine at a time may use it.
type sqliteFile struct {
	gcra
	db                                     *sql.DB
	begin, commit, read, setState, history *sql.Stmt

	ids map[string]int64 // key names to row ids
}

func openSQLite(path string, s lim.Spec) (*sqliteFile, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(sqliteSchema); err != nil {
		return nil, err
	}
	f := &sqliteFile{gcra: newGCRA(s), db: db, ids: map[string]int64{}}
	for st, text := range map[**sql.Stmt]string{
		&f.begin:    `BEGIN IMMEDIATE`,
		&f.commit:   `COMMIT`,
		&f.read:     `SELECT record FROM state WHERE key=?`,
		&f.setState: `INSERT INTO state(key,record) VALUES(?1,?2) ON CONFLICT(key) DO UPDATE SET record=?2`,
		&f.history:  `INSERT INTO history(ts,key,units,id) VALUES(?,?,?,?)`,
	} {
		if *st, err = db.Prepare(text); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *sqliteFile) id(key string) int64 {
	id, ok := f.ids[key]
	if !ok {
		id = int64(len(f.ids) + 1)
		f.ids[key] = id
	}
	return id
}

// write puts one admitted take into the open transaction. A plain take has no id.
func (f *sqliteFile) write(id, tat, now int64, n int) error {
	var record [recordBytes]byte
	binary.LittleEndian.PutUint64(record[:], uint64(tat))
	if _, err := f.setState.Exec(id, record[:]); err != nil {
		return err
	}
	var units [binary.MaxVarintLen64]byte
	_, err := f.history.Exec(now, id, units[:binary.PutVarint(units[:], int64(n))], "")
	return err
}

// txPerTake is what a store does that keeps nothing in memory. Callers take turns under a mutex,
// which is faster than letting SQLite's busy handler sort them out.
type txPerTake struct {
	*sqliteFile
	mu sync.Mutex // guards sqliteFile
}

func newTxPerTake(path string, s lim.Spec) (lim.Limiter, error) {
	f, err := openSQLite(path, s)
	return &txPerTake{sqliteFile: f}, err
}

func (t *txPerTake) Close() error { return t.db.Close() }

// Allow decides in a transaction of its own. After an error the file is given up.
func (t *txPerTake) Allow(_ context.Context, key string, n int) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, err := t.begin.Exec(); err != nil {
		return false, err
	}
	id := t.id(key)
	var tat int64
	var record []byte
	switch err := t.read.QueryRow(id).Scan(&record); {
	case err == nil:
		tat = int64(binary.LittleEndian.Uint64(record))
	case !errors.Is(err, sql.ErrNoRows):
		return false, err
	}
	now := time.Now().UnixNano()
	tat, ok := t.next(tat, now, n)
	if ok {
		if err := t.write(id, tat, now, n); err != nil {
			return false, err
		}
	}
	_, err := t.commit.Exec()
	return ok, err
}

// maxBatch is more than the callers of any case.
const maxBatch = 512

// groupCommit gathers what arrives while a transaction is under way and commits it as the next one.
// Without yield it gathers before the callers just answered have run, so with 64 callers a batch of
// 1 follows one of 63.
type groupCommit struct {
	*sqliteFile                 // used by run only
	tats        map[int64]int64 // used by run only
	yield       bool
	queue       chan *sqliteCall
	stopped     chan struct{}
	calls       sync.Pool
}

type sqliteCall struct {
	key  string
	n    int
	ok   bool
	err  error
	done chan struct{}
}

func newGroupCommit(path string, s lim.Spec, yield bool) (lim.Limiter, error) {
	f, err := openSQLite(path, s)
	if err != nil {
		return nil, err
	}
	g := &groupCommit{
		sqliteFile: f, tats: map[int64]int64{}, yield: yield, queue: make(chan *sqliteCall, maxBatch),
		stopped: make(chan struct{}),
	}
	g.calls.New = func() any { return &sqliteCall{done: make(chan struct{}, 1)} }
	go g.run()
	return g, nil
}

// Close must come after the last Allow returned.
func (g *groupCommit) Close() error {
	close(g.queue)
	<-g.stopped
	return g.db.Close()
}

func (g *groupCommit) Allow(_ context.Context, key string, n int) (bool, error) {
	c := g.calls.Get().(*sqliteCall)
	c.key, c.n = key, n
	g.queue <- c
	<-c.done
	ok, err := c.ok, c.err
	g.calls.Put(c)
	return ok, err
}

func (g *groupCommit) run() {
	defer close(g.stopped)
	var batch []*sqliteCall
	for c := range g.queue {
		if g.yield {
			runtime.Gosched()
		}
		batch = append(batch[:0], c)
		for len(batch) < maxBatch && len(g.queue) > 0 {
			batch = append(batch, <-g.queue)
		}
		err := g.decide(batch)
		for _, c := range batch {
			c.err = err
			c.done <- struct{}{}
		}
	}
}

// decide decides a batch from memory and writes it. After an error the file is given up.
func (g *groupCommit) decide(batch []*sqliteCall) error {
	if _, err := g.begin.Exec(); err != nil {
		return err
	}
	for _, c := range batch {
		id, now := g.id(c.key), time.Now().UnixNano()
		var tat int64
		if tat, c.ok = g.next(g.tats[id], now, c.n); !c.ok {
			continue
		}
		g.tats[id] = tat
		if err := g.write(id, tat, now, c.n); err != nil {
			return err
		}
	}
	_, err := g.commit.Exec()
	return err
}

// disk is the floor below SQLite: what a checkpointed WAL does to the disk, without SQLite.
type disk struct {
	mu sync.Mutex
	f  *os.File // guarded by mu
	at int64    // guarded by mu
}

const (
	diskBlock = 4 << 10
	diskFile  = 4 << 20
)

func newDisk(path string, _ lim.Spec) (lim.Limiter, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(make([]byte, diskFile)); err != nil {
		return nil, err
	}
	return &disk{f: f}, f.Sync()
}

func (d *disk) Close() error { return d.f.Close() }

func (d *disk) Allow(context.Context, string, int) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var block [diskBlock]byte
	if _, err := d.f.WriteAt(block[:], d.at); err != nil {
		return false, err
	}
	d.at = (d.at + diskBlock) % diskFile
	err := syscall.Fdatasync(int(d.f.Fd()))
	return err == nil, err
}
