package redisstore

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/drawgate/drawgate/store"
)

// TestURLs: each form names its servers, the database, and who asks.
//
// req: E5
func TestURLs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		kind   topology
		addrs  string
		master string
		db     int
		user   string
		tls    bool
	}{
		"redis://h":                        {addrs: "h:6379"},
		"valkey://u:p%40%2F@[::1]:1/7":     {addrs: "[::1]:1", db: 7, user: "u:p@/"},
		"valkeys://h:1?db=3":               {addrs: "h:1", db: 3, tls: true},
		"rediss://a:1?skip_verify":         {addrs: "a:1", tls: true},
		"unix:///tmp/redis.sock?db=2":      {addrs: "/tmp/redis.sock", db: 2},
		"redis+sentinel://a,b:2/m":         {sentinel, "a:26379 b:2", "m", 0, "", false},
		"rediss+sentinel://u:p@a/m/5":      {sentinel, "a:26379", "m", 5, "u:p", true},
		"valkey+sentinel://a/m%2Fx?db=6":   {sentinel, "a:26379", "m/x", 6, "", false},
		"valkeys+sentinel://a:1/m/":        {sentinel, "a:1", "m", 0, "", true},
		"redis+cluster://a:1,[::1]:2,c":    {cluster, "a:1 [::1]:2 c:6379", "", 0, "", false},
		"rediss+cluster://:p@a/0":          {cluster, "a:6379", "", 0, ":p", true},
		"valkey+cluster://a/?db=0":         {cluster, "a:6379", "", 0, "", false},
		"valkeys+cluster://a?protocol=2":   {cluster, "a:6379", "", 0, "", true},
		"redis://:p%3F%23@h?client_name=x": {addrs: "h:6379", user: ":p?#"},
		"redis://h?functions=load":         {addrs: "h:6379"},
	} {
		o, kind, err := parse(text)
		user := o.Username
		if o.Password != "" {
			user += ":" + o.Password
		}
		if err != nil || kind != want.kind || strings.Join(o.InitAddress, " ") != want.addrs ||
			o.Sentinel.MasterSet != want.master || o.SelectDB != want.db || user != want.user ||
			(o.TLSConfig != nil) != want.tls {
			t.Errorf("%s: kind %d, servers %q, master %q, database %d, user %q, TLS %v, %v", text, kind,
				o.InitAddress, o.Sentinel.MasterSet, o.SelectDB, user, o.TLSConfig != nil, err)
		}
		if kind != single && o.TLSConfig != nil && o.TLSConfig.ServerName != "" {
			t.Errorf("%s: each server is checked by the name %q", text, o.TLSConfig.ServerName)
		}
		if !IsURL(text) {
			t.Errorf("%s is no URL of this store", text)
		}
	}
	o, _, err := parse("rediss+sentinel://u:p@a,b/m?sentinel_user=s&sentinel_password=q%26&dial_timeout=3s&skip_verify=true")
	if err != nil || o.Username != "u" || o.Password != "p" || o.Sentinel.Username != "s" ||
		o.Sentinel.Password != "q&" || o.Dialer.Timeout != 3*time.Second || o.Sentinel.TLSConfig == nil ||
		!o.Sentinel.TLSConfig.InsecureSkipVerify {
		t.Errorf("the Sentinels' own user: %+v, %v", o, err)
	}
}

// TestURLsThatAreRefused: the error says what to write instead, and repeats nothing of the URL.
//
// req: E5
func TestURLsThatAreRefused(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                                       singleForm,
		"secret":                                 singleForm,
		"http://:secret@h":                       clusterForm,
		"redis+secret://h":                       sentinelForm,
		"redis:secret@h":                         singleForm,
		"redis://a:1,b:2":                        clusterForm,
		"redis://:secret@a,b/0":                  sentinelForm,
		"redis://a:26379,b:26379?master_name=m":  sentinelForm,
		"redis://a:26379?master_set=secret":      sentinelForm,
		"redis://a?addr=b:1":                     clusterForm,
		"redis+cluster://a?addr=b:1":             "in front of",
		"redis+sentinel://a/m?master_name=x":     "master",
		"redis+sentinel://a":                     "the Sentinels' master",
		"redis+sentinel://a/3":                   "a number where the Sentinels' master is named",
		"redis+sentinel://a//3":                  "the Sentinels' master",
		"redis+sentinel://a/m/x":                 singleForm,
		"redis+sentinel://a/m/1/2":               singleForm,
		"redis+cluster://a/3":                    "only database 0",
		"redis+cluster://a?db=3":                 "only database 0",
		"redis+cluster://a,,b":                   "empty name",
		"redis+cluster://":                       "empty name",
		"redis+cluster://a:0":                    "host:port",
		"redis+cluster://a:66000":                "host:port",
		"redis+cluster://a:secret":               "host:port",
		"redis+cluster://a:":                     "host:port",
		"redis+cluster://::1:6379":               "[address]:port",
		"redis://h:66000":                        "host:port",
		"redis://:?secret@a:1":                   "write \"?\" as %3F",
		"redis://u:12?secret=x@a:1/0":            "write \"?\" as %3F",
		"redis://h/x":                            singleForm,
		"redis://h/-1":                           singleForm,
		"redis://h?sentinel_password=secret":     "unknown parameter",
		"redis+cluster://h?pool=secret":          "unknown parameter",
		"redis://h?protocol=2&protocol=3":        "twice",
		"redis://h?dial_timeout=secret":          "dial_timeout",
		"redis://h?db=1;secret":                  "?name=value",
		"redis://u:sec?ret@h":                    "%3F",
		"redis+cluster://u:sec/ret@h":            "%2F",
		"redis+cluster://u:sec#ret@h":            "%23",
		"redis+sentinel://u:sec%zzret@h/m":       singleForm,
		"redis+sentinel://h/m%zzsecret":          "master",
		"redis+cluster://h?client_name=a#secret": "%23",
	} {
		err := CheckURL(text)
		if _, again := Open(text, nil); err != nil && (again == nil || again.Error() != err.Error()) {
			t.Errorf("%s: Open: %v, want %v", text, again, err)
		}
		if err == nil || !errors.Is(err, store.ErrInvalid) || !strings.Contains(err.Error(), says) ||
			slices.ContainsFunc([]string{"secret", "sec?", "ret@", "sec/"}, func(s string) bool {
				return strings.Contains(err.Error(), s)
			}) {
			t.Errorf("%s: %v, want one with %q", text, err, says)
		}
	}
}
