package redisstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// A generation says which server answers, and with which data: it is a hash of the server's run_id,
// which each start of a server draws, and of its master_replid, which a promotion draws. So another
// one means that the server may have other data. Each connection asks for it before it is used, and
// writes it into all calls that it sends.

// ofSentinels marks connections to Sentinels, which have no buckets. It does what none does.
var ofSentinels = new(net.Resolver)

const askTimeout = 2 * time.Second // bounds asking a server which it is

// errReplicaThen says that a connection was made to a replica: nothing was sent. It would refuse
// the call; if it has been promoted since, it has another generation, which a new connection asks for.
var errReplicaThen = errors.New("READONLY the server was a replica when the connection was made")

// namer fills in the generation of a connection's server in what is written.
type namer struct {
	marker     string // in front of each place of a generation
	generation [8]byte
	replica    bool
	at         int // how much of a place the last write ended with
}

// name fills in the generation in what is about to be written. A place may be cut by the end of a
// write.
func (n *namer) name(b []byte) error {
	for len(b) > 0 {
		switch {
		case n.at >= len(n.marker) && n.replica:
			return errReplicaThen // what was sent of the call is no whole command
		case n.at >= len(n.marker):
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

// ask asks the server which it is. The error is that of the connection: a server that refuses to
// say has no generation.
func (g *greeted) ask(user, password string) error {
	if err := g.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		return err
	}
	var said bytes.Buffer
	r := bufio.NewReader(io.TeeReader(g.Conn, &said))
	words := [][]string{{"INFO", "server"}, {"INFO", "replication"}}
	if password != "" {
		auth := []string{"AUTH", user, password}
		if user == "" {
			auth = []string{"AUTH", password}
		}
		words = append([][]string{auth}, words...)
	}
	if _, err := g.Conn.Write(commands(words)); err != nil {
		return err
	}
	var info strings.Builder
	for range words {
		text, err := reply(r)
		if errors.Is(err, io.EOF) && said.Len() > 0 { // it said why it refuses the connection
			g.early = said.Bytes()
			return nil
		}
		if err != nil {
			return err
		}
		info.WriteString(text)
	}
	g.namer.set(info.String())
	return g.SetDeadline(time.Time{})
}

// set reads the generation from what a server says of itself.
func (n *namer) set(info string) {
	fields := infoFields(info)
	id, replid := fields["run_id"], fields["master_replid"]
	if id == "" && replid == "" {
		return
	}
	n.replica = fields["role"] == "slave"
	sum := sha256.Sum256([]byte(id + " " + replid))
	copy(n.generation[:], sum[:])
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
