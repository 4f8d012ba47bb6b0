package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/store/pgstore"
)

// database says which tables of PostgreSQL are meant.
type database struct{ url, prefix, server, tables string }

// database returns the database that the command line or the configuration names; nil if the store
// is another one.
func (a *app) database(f *tableFlags, args []string) (*database, error) {
	if a.server != "" {
		return nil, usage("a table is prepared without a server: leave --server out")
	}
	d, code := &database{prefix: f.prefix}, exitUsage
	if len(args) > 0 {
		if !config.IsPostgres(args[0]) {
			return nil, nil //nolint:nilnil // it is a table of DynamoDB
		}
		d.url = args[0]
	} else {
		flags := a.flags
		flags.WithoutSecrets = true
		c, err := config.Resolve(os.Environ(), flags)
		if err != nil {
			return nil, err
		}
		if !config.IsPostgres(c.Store) {
			return nil, nil //nolint:nilnil // as above
		}
		d.url, d.prefix, code = c.Store, cmp.Or(f.prefix, c.Prefix), exitConfig
	}
	var err error
	if d.server, d.tables, err = pgstore.Place(d.url, d.prefix); err != nil {
		return nil, &exitError{code, fmt.Errorf("%w; such as %s", err, pgstore.Form)}
	}
	return d, nil
}

// onlyDynamoDB refuses flags that mean nothing on PostgreSQL.
func onlyDynamoDB(cmd *cobra.Command) error {
	for _, name := range []string{"region", "endpoint", "read-units", "write-units", "tag", "protect", "account"} {
		if cmd.Flags().Changed(name) {
			return usage("--%s is for DynamoDB: leave it out", name)
		}
	}
	return nil
}

func (a *app) createTables(ctx context.Context, d *database, wait time.Duration, sql bool, role string) error {
	switch {
	case sql:
		text, err := pgstore.TablesSQL(d.url, d.prefix)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(a.out, text); err != nil {
			return err
		}
		return a.grants(d, pgstore.GrantOptions{Role: role})
	case role != "":
		return usage("--role needs --print: who makes the tables owns them; drawgate table policy prints the GRANTs for another role")
	case wait <= 0:
		return usage("--wait %v is not positive", wait)
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	created, err := pgstore.CreateTables(ctx, d.url, d.prefix)
	if errors.Is(err, pgstore.ErrTables) {
		return &exitError{exitConfig, err}
	} else if err != nil {
		return err
	}
	return a.reportTables(ctx, d, &created)
}

func (a *app) checkTables(ctx context.Context, d *database) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	return a.reportTables(ctx, d, nil)
}

// reportTables checks tables, and prints what it finds.
func (a *app) reportTables(ctx context.Context, d *database, created *bool) error {
	findings, err := pgstore.CheckTables(ctx, d.url, d.prefix)
	if err != nil {
		return err
	}
	v := tableVerdict{Table: d.tables, Server: d.server, Created: created, Usable: true}
	for _, f := range findings {
		level := "warning"
		if !f.Warning {
			level, v.Usable = "error", false
		}
		v.Findings = append(v.Findings, tableFinding{level, f.Code, f.Message, f.Advice})
	}
	a.printTable(&v)
	if !v.Usable {
		return done(exitUnavailable)
	}
	return nil
}

// grants prints what lets a role use the tables.
func (a *app) grants(d *database, o pgstore.GrantOptions) error {
	text, err := pgstore.GrantsSQL(d.url, d.prefix, o)
	if err != nil {
		return err
	}
	_, err = io.WriteString(a.out, text)
	return err
}
