//go:build unix

package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestReadyOnceItListens: systemd learns that the server has started when it can be asked, and not
// before.
func TestReadyOnceItListens(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.write("drawgate.yaml", "store: \"memory:\"\npolicies:\n  p: {limits: [{name: m, unit: requests, rolling: 1m, amount: 5}]}\n")
	name := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := socket.SetDeadline(time.Now().Add(endTime)); err != nil {
		t.Fatal(err)
	}
	cmd := b.command("serve", "--config", "drawgate.yaml", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
		"--grpc", "127.0.0.1:0")
	cmd.Env = append(cmd.Environ(), "NOTIFY_SOCKET="+name)
	d := b.begin(cmd)
	said := make([]byte, 100)
	n, err := socket.Read(said)
	if err != nil || string(said[:n]) != "READY=1" {
		t.Errorf("it said %q, %v; want READY=1", said[:n], err)
	}
	d.listens()
	taken := b.command("serve", "--config", "drawgate.yaml", "--listen", d.public[len("http://"):],
		"--admin", "127.0.0.1:0")
	taken.Env = append(taken.Environ(), "NOTIFY_SOCKET="+name)
	if err := taken.Run(); err == nil {
		t.Error("it starts on a port that is taken")
	}
	last, err := net.Dial("unixgram", name)
	if err == nil {
		_, err = last.Write([]byte("nothing"))
	}
	if err != nil {
		t.Fatal(err)
	}
	defer last.Close()
	if n, err := socket.Read(said); err != nil || string(said[:n]) != "nothing" {
		t.Errorf("it says %q, %v, although it does not listen", said[:n], err)
	}
}
