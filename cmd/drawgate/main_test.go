package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/drawgate/drawgate/internal/awstest"
	"github.com/drawgate/drawgate/internal/needs"
	"github.com/drawgate/drawgate/internal/pgtest"
	"github.com/drawgate/drawgate/internal/redistest"
	"github.com/drawgate/drawgate/llm/simulator"
)

// How many tests run at once without -parallel. Most of the time they wait for processes and for
// holds to end. Two at a time, the default on two processors, would leave the processors idle; in
// the quick proof, where they come last, four would as well.
const parallel, parallelShort = "4", "16"

func TestMain(m *testing.M) {
	at := parallel
	if slices.Contains(os.Args, "-test.short=true") {
		at = parallelShort
	}
	if err := flag.Set("test.parallel", at); err != nil {
		panic(err)
	}
	args := slices.Clone(os.Args) // testscript shortens the program's path
	testscript.Main(servers{m}, map[string]func(){
		"drawgate": func() { os.Exit(run(context.Background(), args)) },
	})
}

// servers runs tests, and stops the servers that they share.
type servers struct{ *testing.M }

func (s servers) Run() int { return pgtest.Run(s.M) }

// req: A6, B3, B11, D1, D2, D3, D4, D5, D8
func TestScripts(t *testing.T) {
	needs.NoRace(t) // hundreds of short commands, one after the other
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata", Setup: setup, Cmds: commands(), RequireExplicitExec: true,
		RequireUniqueNames: true,
	})
}

// The same commands share a Redis server as they share a file.
//
// req: E1
func TestScriptsOnRedis(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	addr := redistest.Start(t).Addr
	testscript.Run(t, testscript.Params{
		Dir: "testdata/redis", Cmds: commands(), RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("REDIS", "redis://"+addr+"/0")
			return setup(e)
		},
	})
}

// Commands that name a store, where it has several servers.
//
// req: E5
func TestScriptsOnTopologies(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	cluster, sentinels := redistest.StartCluster(t, false).URL(), redistest.StartSentinels(t, false).URL()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/topologies", Cmds: commands(), RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("CLUSTER", cluster)
			e.Setenv("SENTINELS", sentinels)
			_, nodes, _ := strings.Cut(cluster, "//")
			e.Setenv("NODE", "redis://"+strings.Split(nodes, ",")[0])
			return setup(e)
		},
	})
}

// The commands that prepare a table, on stand-ins for DynamoDB.
//
// req: A7, A9
func TestScriptsOnDynamoDB(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	moto, dynalite := awstest.Moto(t).URL, awstest.Dynalite(t).URL
	testscript.Run(t, testscript.Params{
		Dir: "testdata/dynamodb", Cmds: commands(), RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("MOTO", moto)
			e.Setenv("DYNALITE", dynalite)
			e.Vars = append(e.Vars, "AWS_ACCESS_KEY_ID=AKIATEST", "AWS_SECRET_ACCESS_KEY=hunter2",
				"AWS_EC2_METADATA_DISABLED=true")
			return setup(e)
		},
	})
}

// The commands on PostgreSQL. Each script has a database of its own; the role "guest" needs a
// password.
func TestScriptsOnPostgres(t *testing.T) {
	needs.NoRace(t) // as above
	t.Parallel()
	server := pgtest.Start(t, "fsync=on", "full_page_writes=on") // else each command warns
	server.Do("CREATE ROLE guest LOGIN PASSWORD 'hunter2'; CREATE ROLE app LOGIN; CREATE ROLE watcher LOGIN")
	server.Do("COPY (VALUES ('host all guest 127.0.0.1/32 scram-sha-256'), ('host all all 127.0.0.1/32 trust')) TO '" +
		server.Do("SHOW hba_file") + "'; SELECT pg_reload_conf()")
	var databases atomic.Int64
	testscript.Run(t, testscript.Params{
		Dir: "testdata/postgres", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			name := fmt.Sprintf("db%d", databases.Add(1))
			server.Do("CREATE DATABASE " + name)
			e.Setenv("HOST", server.Addr)
			e.Setenv("DB", name)
			e.Setenv("PG", "postgres://postgres@"+server.Addr+"/"+name+"?sslmode=disable")
			return setup(e)
		},
		Cmds: withSQL(server),
	})
}

// withSQL adds "sql FILE" to the commands: the server's superuser runs a file in the script's
// database.
func withSQL(server *pgtest.Server) map[string]func(*testscript.TestScript, bool, []string) {
	all := commands()
	all["sql"] = func(ts *testscript.TestScript, _ bool, args []string) {
		url := strings.Replace(server.URL(), "/postgres?", "/"+ts.Getenv("DB")+"?", 1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		c, err := pgconn.Connect(ctx, url)
		ts.Check(err)
		defer c.Close(ctx)
		_, err = c.Exec(ctx, ts.ReadFile(args[0])).ReadAll()
		ts.Check(err)
	}
	return all
}

func setup(e *testscript.Env) error {
	e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
	e.Setenv("ZONE", dayZone())
	e.Vars = append(e.Vars, longTimeouts)
	provider, err := simulator.New(nil)
	if err != nil {
		return err
	}
	upstream := httptest.NewServer(provider)
	e.Defer(upstream.Close)
	e.Setenv("SIMULATOR", upstream.URL)
	return nil
}

// longTimeouts gives a server's store the time that a busy machine needs. By default a server
// decides without a store whose disk is slow.
const longTimeouts = "DRAWGATE_STORE_TIMEOUT=30s"

// dayZone returns a zone whose day does not end while a script runs.
func dayZone() string {
	if h := time.Now().UTC().Hour(); h == 6 || h == 7 { // the hours before midnight there, in summer and in winter
		return "Asia/Tokyo" // its midnight is at 15:00 UTC
	}
	return "America/Los_Angeles"
}

// commands are the additional commands of scripts.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		// code N PROGRAM ARGUMENT...: runs it, and checks its exit code.
		"code": func(ts *testscript.TestScript, _ bool, args []string) {
			want, err := strconv.Atoi(args[0])
			ts.Check(err)
			got := 0
			if err := ts.Exec(args[1], args[2:]...); err != nil {
				e, ok := errors.AsType[*exec.ExitError](err)
				if !ok {
					ts.Fatalf("%v", err)
				}
				got = e.ExitCode()
			}
			if got != want {
				ts.Fatalf("exit code %d, want %d", got, want)
			}
		},
		// await FILE [TEXT]: waits until the file is there and has the text.
		"await": func(ts *testscript.TestScript, _ bool, args []string) {
			for range 12_000 { // two minutes
				if b, err := os.ReadFile(ts.MkAbs(args[0])); err == nil &&
					(len(args) == 1 || strings.Contains(string(b), args[1])) {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			ts.Fatalf("%s is not there", args)
		},
		// url NAME FILE [TEXT]: sets a variable to the address that a server wrote to its log,
		// after a text.
		"url": func(ts *testscript.TestScript, _ bool, args []string) {
			_, rest, _ := strings.Cut(ts.ReadFile(args[1]), append(args, "listening on ")[2])
			addr, _, ok := strings.Cut(rest, `"`)
			if !ok {
				ts.Fatalf("%s does not say where it listens", args[1])
			}
			ts.Setenv(args[0], addr)
		},
		// envoy ADDRESS KEY=VALUE: asks about a descriptor as Envoy does. It must pass.
		"envoy": func(ts *testscript.TestScript, _ bool, args []string) {
			conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
			ts.Check(err)
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			key, value, _ := strings.Cut(args[1], "=")
			a, err := ratelimit.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, hit(key, value))
			ts.Check(err)
			if a.GetOverallCode() != ratelimit.RateLimitResponse_OK || a.GetStatuses()[0].GetCurrentLimit() == nil {
				ts.Fatalf("Envoy is told %v", a)
			}
		},
	}
}

// hit is a request in the domain "edge" with one descriptor of one entry.
func hit(key, value string) *ratelimit.RateLimitRequest {
	return &ratelimit.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{
		{Entries: []*common.RateLimitDescriptor_Entry{{Key: key, Value: value}}},
	}}
}
