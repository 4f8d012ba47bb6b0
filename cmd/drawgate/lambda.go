package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/lambdaext"
)

const (
	lambdaFlush  = 2 * time.Second        // for metrics, incidents and warnings at the beginning of an invocation
	lambdaSpare  = 500 * time.Millisecond // left of an invocation's time after that
	lambdaReport = 2 * time.Second        // for the report of an error
	// for what is left at the end, and to close: Lambda kills all processes within 2 s.
	lambdaEnd = 700 * time.Millisecond
)

// extend turns this program into "drawgate serve" as an extension, if AWS Lambda has started it as
// one: from a folder of extensions, where programs get no arguments. The programs of a function
// have the same variable, but are elsewhere.
func (a *app) extend(args []string) {
	api := os.Getenv("AWS_LAMBDA_RUNTIME_API")
	if api == "" || len(args) != 1 || filepath.Base(filepath.Dir(args[0])) != "extensions" {
		return
	}
	a.args, a.lambda = []string{"serve"}, lambdaext.New(api, filepath.Base(args[0]))
}

// checkLambda returns an error if no store is configured for an extension. The default is a file,
// and each copy of a function has files of its own: each would have the whole quota.
func (a *app) checkLambda() error {
	if a.lambda == nil {
		return nil
	}
	c, err := config.Resolve(os.Environ(), a.flags)
	if err == nil && c.Explain()[0].From == "default" {
		err = &exitError{exitConfig, errors.New("no store is configured that all copies of the function share: " +
			"set the function's variable " + config.EnvConfig + " to a file such as /var/task/drawgate.yaml, or " +
			config.EnvStore + " to a store")}
	}
	return err
}

// serveLambda is a listener for the events of AWS Lambda. It returns when Lambda ends the
// environment, which ends the other listeners.
//
// The function may take as soon as the extension has registered, so it must listen by then. What
// was noticed since the last event is sent at the next one, while the function runs: after its
// answer the process may be stopped, and nobody tells the extension when that is.
func (v *service) serveLambda(ctx context.Context) error {
	lambda := v.app.lambda
	if err := lambda.Register(ctx); err != nil {
		return err
	}
	for {
		e, err := lambda.Next(ctx)
		if ctx.Err() != nil { // a signal, or another listener
			return nil //nolint:nilerr // this one did not fail
		}
		if err != nil {
			return err
		}
		end := time.Now().Add(lambdaEnd)
		if e.Kind != lambdaext.Shutdown {
			end = earlier(time.Now().Add(lambdaFlush), e.Deadline.Add(-lambdaSpare))
		}
		if err := v.flush(ctx, end); err != nil {
			v.log.Warn("metrics, incidents or warnings were not sent", "error", err)
		}
		if e.Kind == lambdaext.Shutdown {
			return nil
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// flush sends what would otherwise be sent in the background: incidents first, because they are
// passed on to what is flushed next.
func (v *service) flush(ctx context.Context, end time.Time) (err error) {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	if v.incidents != nil {
		err = v.incidents.Flush(ctx)
	}
	return errors.Join(err, v.run.Flush(ctx))
}

// end closes the service. An extension does not wait for what cannot be reached: it has sent the
// rest, and Lambda would kill it.
func (v *service) end() error {
	if v.app.lambda == nil {
		return v.close()
	}
	done := make(chan error, 1)
	go func() { done <- v.close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(lambdaEnd):
		v.log.Warn("the extension ends before everything was closed")
		return nil
	}
}

// tellLambda reports why an extension ends, so that Lambda shows it. The log has it already.
func (a *app) tellLambda(ctx context.Context, e *exitError) {
	if a.lambda == nil {
		return
	}
	reason := map[int]string{exitConfig: "Extension.ConfigInvalid", exitUnavailable: "Extension.Unavailable"}[e.code]
	ctx, cancel := context.WithTimeout(ctx, lambdaReport)
	defer cancel()
	if err := a.lambda.Fail(ctx, cmp.Or(reason, "Extension.UnknownReason"), text(e)); err != nil {
		a.warnf("%s", err)
	}
}
