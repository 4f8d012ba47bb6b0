package main

import (
	"net"
	"os"
)

// notify tells systemd how far the process is, if it was started by a unit of Type=notify: a
// datagram to the socket that NOTIFY_SOCKET names (sd_notify(3)). If systemd is not told, it ends
// the process after the unit's TimeoutStartSec.
func notify(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	_, _ = c.Write([]byte(state))
	_ = c.Close()
}
