package pg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/drawgate/drawgate/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func configOf(t *testing.T, url string) *pgconn.Config {
	t.Helper()
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func connect(t *testing.T, plain bool) *Conn {
	t.Helper()
	c, err := Connect(t.Context(), configOf(t, pgtest.Shared(t).URL()), plain)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // it may be closed already
	return c
}

func newPool(t *testing.T, cfg PoolConfig) *Pool {
	t.Helper()
	target := configOf(t, pgtest.Shared(t).URL())
	cfg.Connect = func(ctx context.Context) (*Conn, error) { return Connect(ctx, target, false) }
	p, err := NewPool(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func acquire(t *testing.T, p *Pool) *Conn {
	t.Helper()
	c, err := p.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// both calls f for a connection that prepares statements, and for one that does not.
func both(t *testing.T, f func(t *testing.T, c *Conn)) {
	for name, plain := range map[string]bool{"prepared": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(t, connect(t, plain))
		})
	}
}

// The server reads what is written as what it is, and what it writes is read so.
func TestValues(t *testing.T) {
	t.Parallel()
	type row struct {
		Text   string
		OrNone *string
		Bytes  []byte
		Bool   bool
		Big    int64
		Middle int32
		Small  int16
		Texts  []string
		Given  bool
	}
	both(t, func(t *testing.T, c *Conn) {
		// Generators are not for several goroutines.
		text := rapid.Custom(func(t *rapid.T) string {
			return strings.ReplaceAll(rapid.String().Draw(t, "text"), "\x00", "") // the server takes none
		})
		bytes := rapid.SliceOf(rapid.Byte())
		rapid.Check(t, func(t *rapid.T) {
			want := row{
				Text: text.Draw(t, "text"), Bytes: bytes.Draw(t, "bytes"), Bool: rapid.Bool().Draw(t, "bool"),
				Big: rapid.Int64().Draw(t, "big"), Middle: rapid.Int32().Draw(t, "middle"),
				Small: rapid.Int16().Draw(t, "small"), Texts: rapid.SliceOf(text).Draw(t, "texts"),
			}
			if rapid.Bool().Draw(t, "given") {
				s := text.Draw(t, "or none")
				want.OrNone, want.Given = &s, true
			}
			var got row
			err := c.QueryRow(t.Context(), []any{
				&got.Text, &got.OrNone, &got.Bytes, &got.Bool, &got.Big, &got.Middle, &got.Small, &got.Texts,
				&got.Given,
			}, "SELECT $1, $2, $3, $4, $5, $6, $7, $8, $2::text IS NOT NULL",
				want.Text, want.OrNone, want.Bytes, want.Bool, want.Big, want.Middle, want.Small, want.Texts)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Fatalf("%v: %s", err, diff)
			}
		})
	})
}

func TestLists(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, c *Conn) {
		var got string
		for _, test := range []struct {
			list any
			want string
		}{
			{[]int64{math.MinInt64, 7}, "{-9223372036854775808,7}"},
			{[]int32{math.MaxInt32}, "{2147483647}"},
			{[]int16{-1, 0, 1}, "{-1,0,1}"},
			{[][]byte{{1, 0xff}, nil, {}}, `{"\\x01ff",NULL,"\\x"}`},
			{[]string{`a"b`, "", `\`, "é,{}"}, `{"a\"b","","\\","é,{}"}`},
			{[]string{}, "{}"},
			{[]string(nil), "none"},
			{[]int16{}, "{}"},
		} {
			sql := fmt.Sprintf("SELECT coalesce($1::text, 'none') AS %T", test.list)
			err := c.QueryRow(t.Context(), []any{&got}, strings.NewReplacer("[", "", "]", "").Replace(sql), test.list)
			if err != nil || got != test.want {
				t.Errorf("%#v is read as %s (%v), want %s", test.list, got, err, test.want)
			}
		}
	})
}

func TestNothingInThePlaceOfAValue(t *testing.T) {
	t.Parallel()
	c := connect(t, false)
	var b []byte
	var s []string
	err := c.QueryRow(t.Context(), []any{&b, &s, nil}, "SELECT NULL::bytea, NULL::text[], 1")
	if err != nil || b != nil || s != nil {
		t.Errorf("%v, %v: %v", b, s, err)
	}
	var text string
	var n int16
	for sql, dest := range map[string]any{
		"SELECT NULL::text": &text, "SELECT 70000": &n, "SELECT 'text'": &n, "SELECT '{a,NULL}'::text[]": &s,
		"SELECT '{{a},{b}}'::text[]": &s, "SELECT true": new(float64),
	} {
		if err := c.QueryRow(t.Context(), []any{dest}, sql); err == nil {
			t.Errorf("%s is read into a %T", sql, dest)
		}
	}
	if err := c.QueryRow(t.Context(), []any{&n, &n}, "SELECT 1::int2"); !errors.Is(err, errForm) {
		t.Errorf("one column is read as two: %v", err)
	}
	if err := c.QueryRow(t.Context(), []any{&n}, "SELECT 1::int2 WHERE false"); !errors.Is(err, ErrNoRow) {
		t.Errorf("no row: %v", err)
	}
	if _, err := c.Exec(t.Context(), "SELECT $1", 1.5); err == nil || !strings.Contains(err.Error(), "float64") {
		t.Errorf("a number that cannot be sent: %v", err)
	}
	if err := c.QueryRow(t.Context(), []any{&n}, "SELECT 7::int2"); err != nil || n != 7 { // goes on
		t.Errorf("%d, %v", n, err)
	}
}

func TestClock(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, c *Conn) {
		var at time.Time
		var us int64
		err := c.QueryRow(t.Context(), []any{&at, &us},
			"SELECT c, (extract(epoch FROM c) * 1000000)::bigint FROM clock_timestamp() AS c")
		if err != nil || at.UnixMicro() != us || us == 0 {
			t.Errorf("%v is %d µs, want %d: %v", at, at.UnixMicro(), us, err)
		}
	})
}

// A batch ends at its first failure, and says what was carried out.
func TestBatch(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, c *Conn) {
		b := &Batch{}
		b.Add("CREATE TEMPORARY TABLE IF NOT EXISTS t (n bigint PRIMARY KEY)")
		if _, err := c.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		b = &Batch{}
		var read []int64
		b.Add("BEGIN")
		b.Add("INSERT INTO t SELECT unnest($1::bigint[])", []int64{3, 5})
		b.Query(func(r Row) error {
			read = append(read, 0)
			return r.Scan(&read[len(read)-1])
		}, "SELECT n FROM t ORDER BY n")
		b.Add("INSERT INTO t VALUES ($1)", 5)
		b.Add("COMMIT")
		tags, err := c.Run(t.Context(), b)
		e, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || e.Code != "23505" || len(tags) != 3 || tags[1].RowsAffected() != 2 {
			t.Errorf("%v: %v", tags, err)
		}
		if !slices.Equal(read, []int64{3, 5}) {
			t.Errorf("read %v", read)
		}
		if n, err := c.Exec(t.Context(), "ROLLBACK"); err != nil || n != 0 {
			t.Error(err)
		}
		errOwn := errors.New("own")
		err = c.Query(t.Context(), func(Row) error { return errOwn }, "SELECT generate_series(1, 1000)")
		if !errors.Is(err, errOwn) {
			t.Errorf("the error of who reads: %v", err)
		}
		if n, err := c.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 8); err != nil || n != 1 {
			t.Errorf("%d, %v", n, err)
		}
	})
}

// Each statement is prepared once.
func TestPrepared(t *testing.T) {
	t.Parallel()
	c := connect(t, false)
	const count = "SELECT count(*), count(DISTINCT name) FROM pg_prepared_statements"
	for range 3 {
		for _, v := range []string{"1", "2"} {
			var text string
			if err := c.QueryRow(t.Context(), []any{&text}, "SELECT $1", v); err != nil || text != v {
				t.Errorf("%q, %v", text, err)
			}
		}
		var n, names int
		if err := c.QueryRow(t.Context(), []any{&n, &names}, count); err != nil || n != 2 || names != 2 {
			t.Errorf("%d statements with %d names: %v", n, names, err)
		}
	}
	if _, err := c.Exec(t.Context(), "SELECT $1", 1); !errors.Is(err, errTypes) {
		t.Errorf("a parameter of another type: %v", err)
	}
	b := &Batch{}
	b.Add("SELECT 3")
	b.Add("SELECT 3")
	if tags, err := c.Run(t.Context(), b); err != nil || len(tags) != 2 {
		t.Errorf("the same statement twice: %v, %v", tags, err)
	}
	b = &Batch{}
	b.Add("SELECT 1")
	b.Add("SELECT nothing")
	b.Add("SELECT 2")
	if tags, err := c.Run(t.Context(), b); err == nil || len(tags) != 0 {
		t.Errorf("%v, %v", tags, err)
	}
	if _, err := c.Exec(t.Context(), "SELECT 2"); err != nil {
		t.Errorf("after one that cannot be prepared: %v", err)
	}
}

// misnaming sends a wrong name in the next request to describe a statement.
type misnaming struct {
	net.Conn
	armed *atomic.Bool
}

func (c misnaming) Write(b []byte) (int, error) {
	name := []byte("Sdrawgate_")
	if i := bytes.LastIndex(b, name); i >= 0 && c.armed.Swap(false) {
		b = bytes.Clone(b)
		b[i+len(name)] ^= 1
	}
	return c.Conn.Write(b)
}

// A statement that the server has prepared, but not described, as when the time for it was over,
// can be prepared again.
func TestPreparingEndsHalfway(t *testing.T) {
	t.Parallel()
	cfg, armed := configOf(t, pgtest.Shared(t).URL()), &atomic.Bool{}
	cfg.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, c net.Conn) (net.Conn, error) {
		return misnaming{c, armed}, nil
	}
	c, err := Connect(t.Context(), cfg, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	armed.Store(true)
	if _, err := c.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("a statement is carried out that the server has not described")
	}
	if _, err := c.Exec(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
}

func TestNotifications(t *testing.T) {
	t.Parallel()
	c, other := connect(t, true), connect(t, false)
	if err := c.Listen(t.Context(), `a"b`); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two"} {
		if _, err := other.Exec(t.Context(), "SELECT pg_notify($1, $2)", `a"b`, text); err != nil {
			t.Fatal(err)
		}
		if got, err := c.Hear(t.Context()); err != nil || got != text {
			t.Errorf("heard %q, want %q: %v", got, text, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if text, err := c.Hear(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("heard %q, %v", text, err)
	}
}

// Behind a pooler, a connection receives what another one has listened for. Nobody would ever read
// that.
func TestNotificationsOfOthers(t *testing.T) {
	t.Parallel()
	c := connect(t, false)
	if err := c.Script(t.Context(), "LISTEN others; NOTIFY others, 'text'"); err != nil {
		t.Fatal(err)
	}
	if len(c.heard) > 0 {
		t.Errorf("keeps %q", c.heard)
	}
}

func TestName(t *testing.T) {
	t.Parallel()
	if got := Name("a", `b"c`); got != `"a"."b""c"` {
		t.Error(got)
	}
}

func pid(t *testing.T, c *Conn) (pid int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), []any{&pid}, "SELECT pg_backend_pid()"); err != nil {
		t.Fatal(err)
	}
	return pid
}

// A connection is used again unless it cannot be: it is within a transaction, lost, old, or was
// reset meanwhile.
func TestPool(t *testing.T) {
	t.Parallel()
	p := newPool(t, PoolConfig{Max: 1, MaxLife: time.Hour, MaxIdle: time.Hour})
	next := func(before int, again bool, why string) int {
		t.Helper()
		c := acquire(t, p)
		defer c.Release()
		got := pid(t, c)
		if (got == before) != again {
			t.Errorf("%s: the same connection: %t", why, got == before)
		}
		return got
	}
	first := next(0, false, "a new one")
	first = next(first, true, "given back")
	p.Trim()
	first = next(first, true, "not idle for long")

	c := acquire(t, p)
	if _, err := c.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	c.Release()
	first = next(first, false, "within a transaction")

	c = acquire(t, p)
	p.Reset()
	c.Release()
	first = next(first, false, "reset")
	p.Reset()
	first = next(first, false, "reset while idle")

	c = acquire(t, p)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Exec(ctx, "SELECT 1"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has left: %v", err)
	}
	c.Release()
	first = next(first, true, "was not used")

	if _, err := p.Acquire(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who has left: %v", err)
	}
	c = acquire(t, p)
	soon, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := p.Acquire(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no connection is left: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	go func() {
		defer cancel()
		for s := pgtest.Shared(t); s.Do(fmt.Sprint("SELECT wait_event FROM pg_stat_activity WHERE pid = ", first)) != "PgSleep"; {
			time.Sleep(time.Millisecond)
		}
	}()
	if _, err := c.Exec(ctx, "SELECT pg_sleep(60)"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller who leaves: %v", err)
	}
	c.Release()
	next(first, false, "a caller left in between")
}

func TestOldAndIdleConnections(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		cfg  PoolConfig
		trim bool
		same bool
	}{
		{PoolConfig{Max: 2, MaxLife: 1, MaxIdle: time.Hour}, false, false},
		{PoolConfig{Max: 2, MaxLife: time.Hour, MaxIdle: 1}, false, true},
		{PoolConfig{Max: 2, MaxLife: time.Hour, MaxIdle: 1}, true, false},
	} {
		p := newPool(t, test.cfg)
		c := acquire(t, p)
		first := pid(t, c)
		c.Release()
		if test.trim {
			p.Trim()
		}
		c = acquire(t, p)
		if got := pid(t, c); (got == first) != test.same {
			t.Errorf("%+v: the same connection: %t", test, got == first)
		}
		c.Release()
	}
}

func FuzzScan(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x19\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x01a"))
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		var s []string
		if err := (Row{b}).Scan(&s); err == nil && len(s) > len(b) {
			t.Errorf("%d texts in %d bytes", len(s), len(b))
		}
		for _, dest := range []any{
			new(string), new([]byte), new(bool), new(int), new(int64), new(int32), new(int16), new(time.Time),
			new(*bool),
		} {
			_ = Row{b}.Scan(dest) // does not panic
		}
	})
}
