package redisstore

import (
	"bufio"
	"bytes"
	"crypto/sha1" //nolint:gosec // see set
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A generation says which server answers, and with which data: it is a hash of the server's
// run_id, which each start of a server draws, and of its master_replid, which a promotion draws.
// So another one means that the server may have other data. Each connection asks for it before it
// is used, and writes it into all calls that it sends. A server also draws a master_replid when it
// gets its first replica: the script asks it then (confirm in history.lua), which takes as long as
// some takes, until the connections from before have asked again.

// ofSentinels marks connections to Sentinels, which have no buckets. It does what none does.
var ofSentinels = new(net.Resolver)

// askTimeout bounds asking a server which it is.
var askTimeout = 2 * time.Second

// askAgain is how often a connection that is used asks.
const askAgain = time.Minute

// errReplicaThen says that a connection was made to a replica: nothing was sent. It would refuse
// the call; if it has been promoted since, it has another generation, which a new connection asks
// for.
var errReplicaThen = errors.New("READONLY the server was a replica when the connection was made")

// namer fills in the generation of a connection's server in what is written.
type namer struct {
	marker     string // in front of each place of a generation
	generation [8]byte
	current    atomic.Pointer[[8]byte] // the generation of the next place; nil: none
	runID      string                  // of the connection's server, once it was asked
	replica    bool                    // when the connection was made
	at         int                     // how much of a place the last write ended with
}

// name fills in the generation in what is about to be written. A place may be cut by the end of a
// write.
func (n *namer) name(b []byte) error {
	for len(b) > 0 {
		switch {
		case n.at >= len(n.marker) && n.replica:
			return errReplicaThen // what was sent of the call is no whole command
		case n.at >= len(n.marker):
			if now := n.current.Load(); n.at == len(n.marker) && now != nil {
				n.generation = *now
			}
			k := copy(b, n.generation[n.at-len(n.marker):])
			if n.at, b = n.at+k, b[k:]; n.at == placeSize {
				n.at = 0
			}
		case n.at > 0 && b[0] == n.marker[n.at]:
			n.at, b = n.at+1, b[1:]
		case n.at > 0:
			n.at = 0
		default:
			i := bytes.Index(b, []byte(n.marker))
			if i < 0 {
				n.at = n.begun(b)
				return nil
			}
			n.at, b = len(n.marker), b[i+len(n.marker):]
		}
	}
	return nil
}

// begun returns how many bytes of a marker are at the end of a write.
func (n *namer) begun(b []byte) int {
	for k := min(len(n.marker)-1, len(b)); k > 0; k-- {
		if strings.HasPrefix(n.marker, string(b[len(b)-k:])) {
			return k
		}
	}
	return 0
}

// ask asks a server on a connection which it is. early is what it said if it refuses the
// connection; the error is that of the connection. A server that refuses to say has no generation.
// first says that it is the connection which will have the name, before it is used.
func (n *namer) ask(c net.Conn, user, password string, first bool) (early []byte, err error) {
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return nil, err
	}
	var said bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &said))
	words := [][]string{{"INFO", "server"}, {"INFO", "replication"}}
	if password != "" {
		auth := []string{"AUTH", user, password}
		if user == "" {
			auth = []string{"AUTH", password}
		}
		words = append([][]string{auth}, words...)
	}
	if _, err := c.Write(commands(words)); err != nil {
		return nil, err
	}
	var info strings.Builder
	for range words {
		text, err := reply(r)
		if errors.Is(err, io.EOF) && said.Len() > 0 { // it said why it refuses the connection
			return said.Bytes(), nil
		}
		if err != nil {
			return nil, err
		}
		info.WriteString(text)
	}
	n.set(infoFields(info.String()), first)
	return nil, c.SetDeadline(time.Time{})
}

// set notes what a server says of itself. Another server than before, which has its address now, is
// not the one that this connection has.
func (n *namer) set(fields map[string]string, first bool) {
	id, replid := fields["run_id"], fields["master_replid"]
	if first {
		n.runID, n.replica = id, fields["role"] == "slave"
	}
	if id == "" || n.runID != id {
		return
	}
	sum := sha1.Sum([]byte(id + " " + replid)) //nolint:gosec // it hides nothing, and scripts have no other
	generation := [8]byte(sum[:8])
	n.current.Store(&generation)
}

// asker asks again which server a connection has, on another one, if the connection is used.
type asker struct {
	every time.Duration
	ask   func() // nil: there is no server to ask
	end   func() // ends what asks

	asked   time.Time // only used by the writer
	mu      sync.Mutex
	closed  bool           // guarded by mu
	running sync.WaitGroup // only added to while mu is held and it is not closed
	busy    atomic.Bool
}

// again asks if it is time to.
func (a *asker) again() {
	if a.ask == nil || time.Since(a.asked) < a.every || a.busy.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return
	}
	a.asked = time.Now()
	a.busy.Store(true)
	a.running.Go(func() {
		defer a.busy.Store(false)
		a.ask()
	})
}

// close ends what asks, and waits for it.
func (a *asker) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	if a.end != nil {
		a.end()
	}
	a.running.Wait()
}

// commands returns commands as they are sent.
func commands(all [][]string) []byte {
	var b []byte
	for _, words := range all {
		b = fmt.Appendf(b, "*%d\r\n", len(words))
		for _, w := range words {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(w), w)
		}
	}
	return b
}

// reply reads an answer: a text, or nothing if it is an error.
func reply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	n, err := strconv.Atoi(strings.TrimRight(strings.TrimPrefix(line, "$"), "\r\n"))
	if line[0] != '$' || err != nil || n < 0 {
		return "", nil //nolint:nilerr // an error of the server
	}
	text := make([]byte, n+2)
	_, err = io.ReadFull(r, text)
	return string(text), err
}

// infoFields returns the fields of an answer to INFO.
func infoFields(text string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}
