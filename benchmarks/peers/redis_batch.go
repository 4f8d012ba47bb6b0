package peers

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"github.com/redis/rueidis"

	"github.com/drawgate/drawgate/benchmarks/lim"
)

// batchScript is gcraScript for a batch: it reads and writes each of its keys once. ARGV: step and
// tolerance in microseconds, per take the number of its key and its units. It returns a byte per
// take.
const batchScript = `
local call=redis.call
local c=call('TIME')
local now=tonumber(c[1])*1000000+tonumber(c[2])
local step,tol,takes=tonumber(ARGV[1]),tonumber(ARGV[2]),ARGV[3]
local t,new,out={},{},{}
for i=1,#KEYS do
  local v=tonumber(call('GET',KEYS[i]) or 0)
  if v<now then v=now end
  t[i]=v
end
local unpack_,p=struct.unpack,1
for j=1,#takes/4 do
  local k,n
  k,n,p=unpack_('<HH',takes,p)
  local v=t[k]+step*n
  if v-now>tol then
    out[j]='0'
  else
    t[k],new[k],out[j]=v,true,'1'
  end
end
for i=1,#KEYS do
  if new[i] then call('SET',KEYS[i],string.format('%.0f',t[i]),'PX',math.floor((t[i]-now)/1000)+1) end
end
return table.concat(out)`

// batching gathers takes while a call is in flight, and sends what has gathered as one.
type batching struct {
	c      rueidis.Client
	script *rueidis.Lua
	step   string
	tol    string

	mu    sync.Mutex
	busy  bool
	queue []*waiting
}

type waiting struct {
	key     string
	n       int
	allowed bool
	err     error
	done    chan struct{}
}

// mostTakes bounds a batch: with as many keys, Redis is busy for about a millisecond.
const mostTakes = 300

func rueidisBatch(e lim.RedisEnv, s lim.Spec) (lim.Limiter, error) {
	c, stop, err := newRueidis(e.Addr)
	if err != nil {
		return nil, err
	}
	b := &batching{c: c, script: rueidis.NewLuaScript(batchScript)}
	b.step, b.tol = scriptArgs(s)
	return lim.WithClose(func(ctx context.Context, k string, n int) (bool, error) {
		w := &waiting{key: e.Prefix + k, n: n, done: make(chan struct{}, 1)}
		b.mu.Lock()
		if b.busy {
			b.queue = append(b.queue, w)
			b.mu.Unlock()
			<-w.done
			return w.allowed, w.err
		}
		b.busy = true
		b.mu.Unlock()
		b.send(ctx, []*waiting{w})
		b.mu.Lock()
		if len(b.queue) > 0 {
			go b.pump()
		} else {
			b.busy = false
		}
		b.mu.Unlock()
		return w.allowed, w.err
	}, stop), nil
}

func (b *batching) pump() {
	for {
		runtime.Gosched()
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.busy = false
			b.mu.Unlock()
			return
		}
		n := min(len(b.queue), b.fill())
		batch := b.queue[:n:n]
		b.queue = b.queue[n:]
		b.mu.Unlock()
		b.send(context.Background(), batch)
	}
}

// fill says how many of the queue may go: as many as there are for one key, fewer for many.
func (b *batching) fill() int {
	for _, w := range b.queue {
		if w.key != b.queue[0].key {
			return mostTakes
		}
	}
	return len(b.queue)
}

var errBatch = errors.New("the script answered something else")

func (b *batching) send(ctx context.Context, batch []*waiting) {
	var keys []string
	place := make(map[string]int, len(batch))
	takes := make([]byte, 0, 4*len(batch))
	for _, w := range batch {
		k, ok := place[w.key]
		if !ok {
			keys = append(keys, w.key)
			k = len(keys)
			place[w.key] = k
		}
		takes = binary.LittleEndian.AppendUint16(takes, uint16(k))
		takes = binary.LittleEndian.AppendUint16(takes, uint16(w.n))
	}
	answers, err := b.script.Exec(ctx, b.c, keys, []string{b.step, b.tol, string(takes)}).ToString()
	if err == nil && len(answers) != len(batch) {
		err = errBatch
	}
	for i, w := range batch {
		if w.err = err; err == nil {
			w.allowed = answers[i] == '1'
		}
		w.done <- struct{}{}
	}
}
