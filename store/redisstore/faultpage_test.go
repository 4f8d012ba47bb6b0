package redisstore_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// reliability is the page that has the table of faults, between two marks.
const reliability = "../../docs/reliability.md"

const tableBegin, tableEnd = "<!-- generated: faults -->\n", "<!-- end -->"

// split divides the page into what is before the rows of the table, the rows, and the rest.
func split(t *testing.T) (before string, rows []string, after string) {
	t.Helper()
	text, err := os.ReadFile(reliability)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	table, after, too := strings.Cut(rest, tableEnd)
	if !ok || !too {
		t.Fatalf("%s has no table of faults", reliability)
	}
	for line := range strings.Lines(table) {
		rows = append(rows, line)
	}
	return before + tableBegin, rows, tableEnd + after
}

// note writes a row of the table, in place of the one of an earlier run.
func note(t *testing.T, v *verdict) {
	t.Helper()
	before, old, after := split(t)
	rows := map[string]string{}
	for _, row := range old {
		if cells := strings.SplitN(row, "|", 4); len(cells) == 4 {
			rows[cells[1]+"|"+cells[2]] = row
		}
	}
	rows[" "+v.Fault+" | "+v.Servers+" "] = v.row()
	text := before + header
	for i := range faults {
		text += rows[" "+faults[i].name+" | "+faults[i].on+" "]
	}
	if err := os.WriteFile(reliability, []byte(text+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

const header = "| fault | servers | takes | without the store | over `share` | over `closed` | over `slots` | came back | p99.9 | longest | machine | normal after | kept |\n" +
	"|---|---|---|---|---|---|---|---|---|---|---|---|---|\n"

func (v *verdict) row() string {
	kept := "yes"
	if !v.kept() {
		kept = "**no**"
	}
	over := func(kind int) string { return fmt.Sprintf("%d of %d", v.Over[kind], v.May[kind]) }
	ms := func(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }
	cells := []string{
		v.Fault, v.Servers, fmt.Sprint(v.Takes), fmt.Sprint(v.Without), over(ofShare), over(ofClosed), over(ofSlots),
		fmt.Sprintf("%d + %d", v.Back[0], v.Back[1]), ms(v.P999), ms(v.Longest), ms(v.Machine), ms(v.Normal), kept,
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// TestEachFaultIsInTheTable: the page has a row for each fault, in which the promise was kept.
//
// req: C12
func TestEachFaultIsInTheTable(t *testing.T) {
	t.Parallel()
	_, rows, _ := split(t)
	table := strings.Join(rows, "")
	for i := range faults {
		_, row, ok := strings.Cut(table, "| "+faults[i].name+" | "+faults[i].on+" |")
		row, _, _ = strings.Cut(row, "\n")
		if !ok || !strings.HasSuffix(row, "| yes |") {
			t.Errorf("%s has no row for %q on %s, or one that is not kept: run TestFaults with DRAWGATE_LONG=1",
				reliability, faults[i].name, faults[i].on)
		}
	}
}
