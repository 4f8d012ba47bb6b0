package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// A page has what --help has, and no text in it is a command of the page's language.
func TestManPage(t *testing.T) {
	t.Parallel()
	root := &cobra.Command{Use: "drawgate"}
	cmd := &cobra.Command{
		Use: "go KEY", Short: "Go on", Long: "Goes on, as\n.so file says.\n\nCodes:\n  0  yes\\no\n'tis all", Example: "  drawgate go a-b",
		Run: func(*cobra.Command, []string) {},
	}
	cmd.Flags().IntP("times", "n", 1, "how `OFTEN`")
	cmd.Flags().Bool("secret", false, "not shown")
	_ = cmd.Flags().MarkHidden("secret")
	root.AddCommand(cmd)
	version, _, _ := build()
	want := `.TH "DRAWGATE\-GO" 1 "" "drawgate ` + roff(version) + `" "Drawgate"
.SH NAME
drawgate\-go \- Go on
.SH SYNOPSIS
drawgate go KEY [flags]
.SH DESCRIPTION
Goes on, as
\&.so file says.
.sp
Codes:
.nf
  0  yes\eno
.fi
\&'tis all
.SH OPTIONS
.TP
\fB\-n\fR, \fB\-\-times\fR \fIOFTEN\fR
how OFTEN (default 1)
.SH EXAMPLES
.nf
  drawgate go a\-b
.fi
.SH SEE ALSO
\fBdrawgate\fR(1)
`
	if diff := cmp.Diff(want, manPage(cmd)); diff != "" {
		t.Error(diff)
	}
}
