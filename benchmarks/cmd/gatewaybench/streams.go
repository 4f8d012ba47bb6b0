package main

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/drawgate/drawgate/benchmarks/internal/chat"
)

// streamCallers is how many streams run at the same time where they are compared.
const streamCallers = 64

// each calls f for 1 to n, so many at a time.
func each(n, callers int, f func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for i := int(next.Add(1)); i <= n; i = int(next.Add(1)) {
				f(i)
			}
		})
	}
	wg.Wait()
}

// compareStreams counts streams that do not have the bytes that they should have.
func (b *bench) compareStreams() error {
	const name = "streams"
	if !b.only.MatchString(name) {
		return nil
	}
	for _, who := range []string{plain, proxy, gateway} {
		addr, path := b.at(who, bare)
		conns := newConns(addr, streamCallers)
		var cut, other, pieces atomic.Int64
		each(*streams, streamCallers, func(i int) {
			usage := i%2 == 0 // the gateway asks for the usage if the caller does not
			request := chat.Request(addr, path, callerKey, chat.Body(bodySize, true, usage), chat.HeaderSeed,
				strconv.Itoa(i))
			want := bytes.Join(chat.Events(uint64(i), usage), nil)
			var got []byte
			err := conns.call(context.Background(), request, func(p []byte) { pieces.Add(1); got = append(got, p...) })
			switch {
			case err != nil || len(got) < len(want):
				cut.Add(1)
			case !bytes.Equal(got, want):
				other.Add(1)
			}
		})
		conns.close()
		m := map[string]float64{
			"streams": float64(*streams), "cut": float64(cut.Load()),
			"different": float64(other.Load()), "pieces": float64(pieces.Load()),
		}
		if err := b.put(who, name, 1, m, ""); err != nil {
			return err
		}
	}
	return nil
}

// seeEvents counts streams of which some event was held back: the upstream sends an event only when
// the caller has the one before, so such a stream ends without the rest.
func (b *bench) seeEvents() error {
	const name = "held-back"
	if !b.only.MatchString(name) {
		return nil
	}
	for n, who := range []string{proxy, gateway} {
		addr, path := b.at(who, bare)
		streams := newConns(addr, streamCallers)
		words := newConns(b.parts[bare].Addr, streamCallers)
		var back, events atomic.Int64
		each(*seen, streamCallers, func(i int) {
			seed := (n+1)<<32 + i // of this stream alone: it is its name as well
			if !seeStream(streams, words, addr, path, seed, &events) {
				back.Add(1)
			}
		})
		streams.close()
		words.close()
		m := map[string]float64{
			"streams": float64(*seen), "held_back": float64(back.Load()),
			"events": float64(events.Load()),
		}
		if err := b.put(who, name, 1, m, ""); err != nil {
			return err
		}
	}
	return nil
}

// seeStream runs one stream, and tells the upstream of each event that has arrived in whole.
func seeStream(streams, words *conns, addr, path string, seed int, events *atomic.Int64) (whole bool) {
	usage := seed%2 == 0
	id := strconv.Itoa(seed)
	request := chat.Request(addr, path, callerKey, chat.Body(bodySize, true, usage), chat.HeaderSeed, id,
		chat.HeaderPace, chat.PaceSeen)
	word := chat.Request("upstream", chat.SeenPath+"?"+id, callerKey, nil)
	want := chat.Events(uint64(seed), usage)
	var got []byte
	last := 0 // where the event begins that has not ended yet
	err := streams.call(context.Background(), request, func(p []byte) {
		got = append(got, p...)
		for end := bytes.Index(got[last:], []byte("\n\n")); end >= 0; end = bytes.Index(got[last:], []byte("\n\n")) {
			event := got[last : last+end]
			last += end + len("\n\n")
			events.Add(1)
			if chat.Shown(event) && tell(words, word) != nil {
				return // the stream ends without the rest
			}
		}
	})
	return err == nil && bytes.Equal(got, bytes.Join(want, nil))
}

func tell(words *conns, word []byte) error {
	conn := <-words.idle
	defer func() { words.idle <- conn }()
	if _, err := conn.Call(context.Background(), word, nil); err != nil {
		return fmt.Errorf("telling the upstream: %w", err)
	}
	return nil
}
