package redisstore

import (
	"crypto/sha1" //nolint:gosec // it only has to differ from that of another version
	"encoding/hex"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// Functions says whether a store calls functions of the server, which Redis has from 7.0 on, and
// Valkey. They do the same as the script. A server keeps them with its data and gives them to its
// replicas, and a user who calls them needs no right to load scripts.
type Functions uint8

// What a store may call.
const (
	CallScript    Functions = iota // a script, which any program loads that finds it missing
	LoadFunctions                  // functions=load in a URL: any program loads them that finds them missing
	UseFunctions                   // functions=use: functions that somebody has loaded: see [Library]
)

var functionsNamed = map[string]Functions{"load": LoadFunctions, "use": UseFunctions}

// functionsOf returns what a URL, which is right, says.
func functionsOf(serverURL string) Functions {
	_, rest, _ := strings.Cut(serverURL, "://")
	u, err := split(rest)
	if err != nil {
		return CallScript
	}
	return functionsNamed[u.query.Get("functions")]
}

// library returns the library's name and the library.
var library = sync.OnceValues(makeLibrary)

// Library returns the library of functions, for FUNCTION LOAD REPLACE on each primary. Its name
// differs from version to version if it does, so that programs of two versions use one server.
func Library() string {
	_, text := library()
	return text
}

// makeLibrary returns the library and its name. The server asks each function for its name only.
func makeLibrary() (name, text string) {
	var all strings.Builder
	for _, f := range []struct{ name, body string }{
		{"decide", body()}, {"document", documentBody}, {"known", knownBody}, {"mark", markBody}, {"probe", probeBody},
	} {
		fmt.Fprintf(&all, "redis.register_function('LIBRARY_%s', function(KEYS, ARGV)\n%s\nend)\n", f.name, f.body)
	}
	sum := sha1.Sum([]byte(all.String())) //nolint:gosec // see above
	name = "drawgate_" + hex.EncodeToString(sum[:6])
	return name, "#!lua name=" + name + "\n" + strings.ReplaceAll(all.String(), "'LIBRARY_", "'"+name+"_")
}

// inLibrary returns a script that is also a function of the library.
func inLibrary(name string, body func() string) func() *script {
	return sync.OnceValue(func() *script {
		s := newScript(body())
		prefix, _ := library()
		s.function = prefix + "_" + name
		return &s
	})
}

// noFunction is what a server says of a function that it does not have.
const noFunction = "Function not found"

// invoke returns a call of a script, or of its function.
func (s *Store) invoke(c rueidis.Client, sc *script, keys, args []string) rueidis.Completed {
	n := int64(len(keys))
	if s.functions == CallScript || sc.function == "" {
		return c.B().Evalsha().Sha1(sc.sha).Numkeys(n).Key(keys...).Arg(args...).Build()
	}
	return c.B().Fcall().Function(sc.function).Numkeys(n).Key(keys...).Arg(args...).Build()
}

// teach returns the command by which a server gets to know a script, or all functions.
func (s *Store) teach(c rueidis.Client, sc *script) rueidis.Completed {
	if s.functions == CallScript || sc.function == "" {
		return c.B().ScriptLoad().Script(sc.body).Build()
	}
	return c.B().FunctionLoad().Replace().FunctionCode(Library()).Build()
}

// mayLoad reports whether a server did not know what was called, and this program may teach it.
func (s *Store) mayLoad(r *rueidis.RedisResult) bool {
	return s.functions != UseFunctions && unknownScript(r)
}
