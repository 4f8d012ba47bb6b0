package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/pattern"
	"github.com/drawgate/drawgate/internal/present"
	"github.com/drawgate/drawgate/store/dynamostore"
	"github.com/drawgate/drawgate/store/pgstore"
)

// tableFlags say which table is meant.
type tableFlags struct {
	region, endpoint string // of DynamoDB
	prefix           string // of PostgreSQL
}

const tableExit = `

Exit codes:
  0   the table can be used (there may be warnings)
  64  the command line is wrong
  69  the table cannot be used, or AWS or the server does not answer
  78  the configuration is wrong; create: there is a table, and it differs`

func (a *app) tableCmd() *cobra.Command {
	var f tableFlags
	cmd := &cobra.Command{
		Use:   "table",
		Short: "Create or check the tables of a store on DynamoDB or PostgreSQL, or print the permissions",
		Long: `Prepare a DynamoDB table for the store dynamodb://TABLE?region=REGION. A table has the partition key ` + dynamostore.KeyAttribute + ` (a string), and time to live on
the attribute ` + dynamostore.TTLAttribute + `. Several installations can share it, each with its own prefix.

The commands take the name of a table, or a URL such as dynamodb://quotas?region=eu-central-1. Without either they use the store of the
configuration (--store, $` + config.EnvStore + `, or the file's). The region is --region, or the URL's, or $AWS_REGION, or that of the profile.

Credentials come from where AWS's own tools look for them: $AWS_PROFILE, $AWS_ACCESS_KEY_ID and $AWS_SECRET_ACCESS_KEY, or the role of the machine.

Or prepare a PostgreSQL database for the store postgres://USER@HOST/DATABASE. Its tables are those of a prefix, in the schema that the URL names (schema=).
The commands take the URL, or use the configured store and its prefix.`,
	}
	cmd.PersistentFlags().StringVar(&f.region, "region", "", "region of the table, such as eu-central-1")
	cmd.PersistentFlags().StringVar(&f.endpoint, "endpoint", "",
		"URL of another server than AWS's, such as http://127.0.0.1:8000 of DynamoDB Local")
	cmd.PersistentFlags().StringVar(&f.prefix, "prefix", "",
		"PostgreSQL: what the names of the tables start with (default: the prefix of the configuration)")
	cmd.AddCommand(a.tableCreateCmd(&f), a.tableCheckCmd(&f), a.tablePolicyCmd(&f))
	return cmd
}

func (a *app) tableCreateCmd(f *tableFlags) *cobra.Command {
	var o dynamostore.TableOptions
	var tags []string
	var sql bool
	var role string
	wait := 5 * time.Minute
	cmd := &cobra.Command{
		Use:   "create [TABLE | URL]",
		Short: "Create the table or tables, unless they are there",
		Long: `Create a table, wait until it is active, and switch on time to live, so that DynamoDB deletes buckets that are no longer used.

If the table exists, it must have the right key, and the capacity and protection that the flags name. Nothing about it is changed, except that
time to live is switched on if it is off. So the command can be run again at any time, for example by each deployment.

Capacity is on demand unless --read-units and --write-units are given. Each decision writes at least one unit, and one for each KB of its bucket.

On PostgreSQL it makes the four tables, and the schema that the URL names, and needs the permission to create them. With --print it prints the SQL instead,
and the GRANTs for --role, for somebody else to apply.` + tableExit,
		Example: `  drawgate table create quotas --region eu-central-1
  drawgate table create --store 'dynamodb://quotas?region=eu-central-1' --tag team=search --protect
  drawgate table create quotas --region eu-central-1 --read-units 50 --write-units 50
  drawgate table create postgres://app@db/quotas --print`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) (err error) {
			if d, err := a.database(f, args); err != nil {
				return err
			} else if d != nil {
				if err := onlyDynamoDB(cmd); err != nil {
					return err
				}
				return a.createTables(cmd.Context(), d, wait, sql, role)
			}
			if sql || role != "" {
				return usage("--print and --role are for PostgreSQL: name a database, such as postgres://app@db/quotas, or leave them out")
			}
			if o.Tags, err = readTags(tags); err != nil {
				return err
			}
			if wait <= 0 {
				return usage("--wait %v is not positive", wait)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			return a.createTable(ctx, f, args, &o)
		}),
	}
	cmd.Flags().Int64Var(&o.ReadUnits, "read-units", 0, "provisioned read units a second")
	cmd.Flags().Int64Var(&o.WriteUnits, "write-units", 0, "provisioned write units a second")
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "NAME=VALUE: a tag of a new table; may be given several times")
	cmd.Flags().BoolVar(&o.DeletionProtection, "protect", false, "protect the table from being deleted")
	cmd.Flags().BoolVar(&sql, "print", false, "PostgreSQL: print the SQL, and change nothing")
	cmd.Flags().StringVar(&role, "role", "", "PostgreSQL, with --print: the role that uses the tables (default: the user of the URL)")
	durationVar(cmd, &wait, "wait", wait, "how long to wait until the table is active, or the server answers")
	return cmd
}

func (a *app) tableCheckCmd(f *tableFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "check [TABLE | URL]",
		Short: "Check that the table or tables can be used, with these credentials",
		Long: `Check that a table can be used: that it is there and active, its key, its time to live, its capacity, the credentials, and each permission that the
store needs. For each finding it prints what to do.

Nothing is changed. The permissions to write are tried with calls whose condition never holds, on a key that no bucket has. That costs a few capacity
units. Run it where the program runs, so that it has the same credentials.

On PostgreSQL it checks the connection, the tables and their version, what the role may do, whether the server may lose what it answered, and whether
notifications arrive.` + tableExit,
		Example: `  drawgate table check quotas --region eu-central-1
  drawgate table check --config drawgate.yaml --json
  drawgate table check "postgres://app@db/quotas?schema=limits" --prefix team
  drawgate table check quotas --region local --endpoint http://127.0.0.1:8000`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if d, err := a.database(f, args); err != nil {
				return err
			} else if d != nil {
				if err := onlyDynamoDB(cmd); err != nil {
					return err
				}
				return a.checkTables(cmd.Context(), d)
			}
			return a.checkTable(cmd.Context(), f, args)
		}),
	}
}

func (a *app) tablePolicyCmd(f *tableFlags) *cobra.Command {
	var o dynamostore.PolicyOptions
	var account, role string
	cmd := &cobra.Command{
		Use:   "policy [TABLE | URL]",
		Short: "Print the smallest IAM policy for a table, or the GRANTs of PostgreSQL",
		Long: `Print the smallest IAM policy, as JSON, with which a program can use a table as its store. AWS is not asked. TABLE may also be the table's ARN. Without
--region and --account the policy allows any of them.

On PostgreSQL it prints the GRANTs for --role: what a program needs, with --read-only what status and explain need, and with --create what table create
needs, in a schema that is there. The server is not asked.`,
		Example: `  drawgate table policy quotas --region eu-central-1 --account 123456789012 > policy.json
  drawgate table policy arn:aws:dynamodb:eu-central-1:123456789012:table/quotas --create
  drawgate table policy quotas --read-only
  drawgate table policy postgres://db/quotas --role app`,
		Args: cobra.MaximumNArgs(1),
		RunE: action(func(cmd *cobra.Command, args []string) error {
			if d, err := a.database(f, args); err != nil {
				return err
			} else if d != nil {
				if err := onlyDynamoDB(cmd); err != nil {
					return err
				}
				return a.grants(d, pgstore.GrantOptions{Role: role, ReadOnly: o.ReadOnly, Create: o.Create})
			}
			if role != "" {
				return usage("--role is for PostgreSQL: name a database, such as postgres://app@db/quotas, or leave it out")
			}
			return a.tablePolicy(f, args, account, o)
		}),
	}
	cmd.Flags().StringVar(&account, "account", "", "AWS account of the table, 12 digits")
	cmd.Flags().StringVar(&role, "role", "", "PostgreSQL: the role that gets the permissions (default: the user of the URL)")
	cmd.Flags().BoolVar(&o.ReadOnly, "read-only", false, "only what status and explain need")
	cmd.Flags().BoolVar(&o.Create, "create", false, "also what table create needs")
	cmd.MarkFlagsMutuallyExclusive("read-only", "create")
	return cmd
}

// readTags reads tags of the form NAME=VALUE.
func readTags(list []string) (map[string]string, error) {
	tags := map[string]string{}
	for _, text := range list {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" {
			return nil, usage("--tag %s is not of the form NAME=VALUE", text)
		}
		if _, twice := tags[name]; twice {
			return nil, usage("--tag %s is given twice", name)
		}
		tags[name] = value
	}
	return tags, nil
}

// location returns the table that the command line or the configuration names.
func (a *app) location(f *tableFlags, args []string) (dynamostore.Location, error) {
	if f.prefix != "" {
		return dynamostore.Location{}, usage("--prefix is for PostgreSQL: leave it out")
	}
	l, err := a.namedTable(args)
	if err != nil {
		return dynamostore.Location{}, err
	}
	if f.region != "" {
		l.Region = f.region
	}
	if f.endpoint != "" {
		l.Endpoint = f.endpoint
	}
	return l, readable(l.Check(), exitUsage)
}

// namedTable is location without the flags.
func (a *app) namedTable(args []string) (dynamostore.Location, error) {
	if len(args) > 0 {
		if !strings.Contains(args[0], ":") {
			return dynamostore.Location{Table: args[0]}, nil
		}
		l, err := dynamostore.ParseURL(args[0])
		return l, readable(err, exitUsage)
	}
	flags := a.flags
	flags.WithoutSecrets = true
	c, err := config.Resolve(os.Environ(), flags)
	if err != nil {
		return dynamostore.Location{}, err
	}
	l, err := dynamostore.ParseURL(c.Store)
	if err != nil && !strings.HasPrefix(c.Store, "dynamodb:") {
		return l, usage("the configured store %s is neither a DynamoDB table nor a PostgreSQL database: name the table, such as drawgate table check quotas, or the database's URL", config.RedactURL(c.Store))
	}
	return l, readable(err, exitConfig)
}

// readable returns an error of a table's URL without the name of the package, and with a code.
func readable(err error, code int) error {
	e, ok := errors.AsType[*dynamostore.URLError](err)
	if !ok {
		return err
	}
	return &exitError{code, fmt.Errorf("the table's URL %s; %s", e.Reason, e.Hint)}
}

// tableVerdict is the result of create and check as JSON.
type tableVerdict struct {
	Table    string         `json:"table"`
	Region   string         `json:"region,omitempty"`
	Server   string         `json:"server,omitempty"` // of PostgreSQL, with the database
	Created  *bool          `json:"created,omitempty"`
	Usable   bool           `json:"usable"`
	Findings []tableFinding `json:"findings,omitempty"`
}

type tableFinding struct {
	Level   string `json:"level"` // error, warning
	Code    string `json:"code"`
	Message string `json:"message"`
	Advice  string `json:"advice"`
}

// add adds findings.
func (v *tableVerdict) add(list ...dynamostore.Finding) {
	for _, f := range list {
		level := "error"
		if f.Warning {
			level = "warning"
		} else {
			v.Usable = false
		}
		v.Findings = append(v.Findings, tableFinding{level, f.Code, f.Message, f.Advice})
	}
}

func (a *app) createTable(ctx context.Context, f *tableFlags, args []string, o *dynamostore.TableOptions) error {
	l, err := a.location(f, args)
	if err != nil {
		return err
	}
	client, err := dynamostore.Client(ctx, l)
	if err != nil {
		return err
	}
	created, findings, err := dynamostore.CreateTable(ctx, client, l.Table, o)
	v := tableVerdict{Table: l.Table, Region: client.Options().Region, Created: &created, Usable: true}
	code := exitOK
	if e, ok := errors.AsType[*dynamostore.TableError](err); ok {
		v.add(e.Finding)
		code = exitUnavailable
		if e.Differs() {
			code = exitConfig
		}
	} else if err != nil {
		return err
	}
	v.add(findings...)
	a.printTable(&v)
	return done(code)
}

// checkTime is how long a check may take: a network that swallows packets keeps each call waiting.
const checkTime = time.Minute

func (a *app) checkTable(ctx context.Context, f *tableFlags, args []string) error {
	l, err := a.location(f, args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	client, err := dynamostore.Client(ctx, l)
	if err != nil {
		return err
	}
	v := tableVerdict{Table: l.Table, Region: client.Options().Region, Usable: true}
	v.add(dynamostore.CheckTable(ctx, client, l.Table)...)
	a.printTable(&v)
	if !v.Usable {
		return done(exitUnavailable)
	}
	return nil
}

// printTable prints a verdict.
func (a *app) printTable(v *tableVerdict) {
	if a.json {
		a.printJSON(v)
		return
	}
	failures := 0
	for _, f := range v.Findings {
		if f.Level == "error" {
			failures++
		}
		a.printf("%s: %s\n  %s\n", f.Level, f.Message, f.Advice)
	}
	state := "can be used"
	switch {
	case !v.Usable:
		state = "cannot be used"
	case v.Created != nil && *v.Created:
		state = "is created, and can be used"
	case v.Created != nil:
		state = "was there already, and can be used"
	}
	what := fmt.Sprintf("table %s in region %s", v.Table, v.Region)
	if v.Server != "" {
		what = fmt.Sprintf("tables %s on %s", v.Table, v.Server)
		state = strings.NewReplacer("is created", "are created", "was there", "were there").Replace(state)
	}
	a.printf("%s %s: %s and %s\n", what, state, present.Count(failures, "error"),
		present.Count(len(v.Findings)-failures, "warning"))
}

var accounts = pattern.New(`^[0-9]{12}$`)

func (a *app) tablePolicy(f *tableFlags, args []string, account string, o dynamostore.PolicyOptions) error {
	if account != "" && !accounts().MatchString(account) {
		return usage("--account %q is not the number of an AWS account, which has 12 digits", account)
	}
	var arn string
	if len(args) > 0 && strings.HasPrefix(args[0], "arn:") {
		if arn = args[0]; account != "" || f.region != "" {
			return usage("the ARN already has a region and an account: leave --region and --account out")
		}
	} else {
		l, err := a.location(f, args)
		if err != nil {
			return err
		}
		arn = dynamostore.TableARN(l.Table, l.Region, account)
	}
	text, err := dynamostore.Policy(arn, o)
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}
