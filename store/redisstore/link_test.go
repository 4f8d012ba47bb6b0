package redisstore

import (
	"errors"
	"testing"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	s := newStore(nil)
	for version, ok := range map[string]bool{
		"5.0.14": false, "6.0.16": false, "6.2.0": true, "6.2.14": true, "7.0.15": true, "8.2.1": true, "10.0.0": true,
		"255.255.255": true, "unstable": true,
	} {
		err := s.checkInfo("# Server\r\nredis_version:"+version+"\r\nredis_mode:standalone\r\n", s.logger.Warn)
		if ok != (err == nil) || err != nil && !errors.Is(err, errOld) {
			t.Errorf("version %s: %v", version, err)
		}
	}
}
