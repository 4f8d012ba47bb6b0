package gateway

import (
	"bytes"
	"container/list"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// maxPart is the largest part of the cache that one answer may have.
const maxPart = 8

// cacheKey says which calls are the same.
type cacheKey [sha256.Size]byte

// answer is a whole answer of the provider. It is not changed.
type answer struct {
	header http.Header
	body   []byte
	at     time.Time // when it was given
}

// size is about how many bytes it takes.
func (a *answer) size() int64 {
	const rest = 512 // headers, and what the cache needs for it
	return int64(len(a.body)) + rest
}

// cache keeps answers. The one that was not used for longest goes first. It is safe for concurrent
// use.
type cache struct {
	most int64 // bytes

	mu    sync.Mutex
	size  int64
	found map[cacheKey]*list.Element
	order *list.List // of cached, the latest one first
}

type cached struct {
	key    cacheKey
	answer *answer
	until  time.Time // it is of no use after that
}

func newCache(most int64) *cache {
	return &cache{most: most, found: map[cacheKey]*list.Element{}, order: list.New()}
}

// get returns an answer, or nil.
func (c *cache) get(k cacheKey, now time.Time) *answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.found[k]
	if e == nil {
		return nil
	}
	got, _ := e.Value.(*cached)
	if !now.Before(got.until) {
		c.remove(e)
		return nil
	}
	c.order.MoveToFront(e)
	return got.answer
}

// put keeps an answer for a time.
func (c *cache) put(k cacheKey, a *answer, keep time.Duration) {
	if a.size() > c.most/maxPart {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.found[k]; e != nil {
		c.remove(e)
	}
	c.found[k] = c.order.PushFront(&cached{k, a, a.at.Add(keep)})
	for c.size += a.size(); c.size > c.most; {
		c.remove(c.order.Back())
	}
}

// remove removes an element. The caller holds c.mu.
func (c *cache) remove(e *list.Element) {
	gone, _ := c.order.Remove(e).(*cached)
	delete(c.found, gone.key)
	c.size -= gone.answer.size()
}

// cacheKey returns the key of a call: of all that the provider gets of it, but for headers that
// change no answer.
func (x *exchange) cacheKey(c *call) (k cacheKey) {
	u := c.up.config
	caller := ""
	if !c.entry.Cache.Shared {
		caller = "key " + x.key.Name
	}
	parts := []string{caller, u.Name, u.URL.String(), u.Owner, c.path, outQuery(x.r.URL.RawQuery, u.Profile)}
	headers := u.passed(x.header())
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		if !slices.Contains(untold, name) && !strings.HasPrefix(name, "X-Stainless-") {
			parts = append(append(parts, name, strconv.Itoa(len(headers[name]))), headers[name]...)
		}
	}
	if c.filter { // with the usage the stream has more for those who asked for it
		parts = append(parts, "filter")
	}
	h := sha256.New()
	for _, p := range append(parts, string(c.body)) { // with their lengths, so that no two lists are the same
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		_, _ = io.WriteString(h, p) // a hash takes everything
	}
	h.Sum(k[:0])
	return k
}

// cacheable are the headers that are kept with an answer.
var cacheable = []string{"Content-Type"}

// keep collects an answer that is passed on, for the cache.
type keep struct {
	key  cacheKey
	body bytes.Buffer
	most int64
	full bool // it is too large
}

func (k *keep) add(piece []byte) {
	if k.full = k.full || int64(k.body.Len()+len(piece)) > k.most; k.full {
		k.body = bytes.Buffer{}
		return
	}
	k.body.Write(piece)
}

// store keeps what was collected, if it is whole.
func (x *exchange) store(k *keep, c *call, resp *http.Response) {
	if k.full || resp.StatusCode != http.StatusOK || !plain(resp) {
		return
	}
	s := x.up.config.Profile.NewStream(c.Call)
	_, _ = s.Write(k.body.Bytes()) // it takes everything
	if _ = s.Close(); !s.Ended() {
		return
	}
	a := &answer{header: http.Header{}, body: bytes.Clone(k.body.Bytes()), at: time.Now()}
	for _, name := range cacheable {
		if v := resp.Header[name]; v != nil {
			a.header[name] = v
		}
	}
	x.h.cache.put(k.key, a, c.entry.Cache.TTL+c.entry.Cache.Stale)
}

// cached answers a call from the cache.
func (x *exchange) cached(c *call, a *answer, how string) {
	if x.result = ResultCacheHit; how == CacheStale {
		x.result = ResultCacheStale
	}
	h := x.w.Header()
	maps.Copy(h, a.header)
	h.Set(HeaderCache, how)
	if c.label != "" {
		h.Set(HeaderModel, c.label)
	}
	h.Set("Age", strconv.FormatInt(max(0, int64(time.Since(a.at)/time.Second)), 10))
	h.Set("Content-Length", strconv.Itoa(len(a.body)))
	_ = x.rc.SetWriteDeadline(time.Now().Add(writeTimeout)) // a test's recorder has none
	x.w.WriteHeader(http.StatusOK)
	_, _ = x.w.Write(a.body) // whoever has left needs no answer
}

// asksFor reports whether a request's Cache-Control has a word.
func asksFor(h http.Header, word string) bool {
	for _, v := range h["Cache-Control"] {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), word) {
				return true
			}
		}
	}
	return false
}
