package stat

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
)

// ReadRows reads a file of raw results: the line of its header, and the rows.
func ReadRows(path string) (header string, rows []Row, err error) {
	f, err := os.Open(path) //nolint:gosec // the caller's
	if err != nil {
		return "", nil, err
	}
	defer f.Close() //nolint:errcheck // it is only read
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var row Row
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			return "", nil, fmt.Errorf("%s: %w", path, err)
		}
		if row.Section == "" {
			header = lines.Text()
			continue
		}
		rows = append(rows, row)
	}
	return header, rows, lines.Err()
}

// Values are the figures of a contestant in a cell, by round, divided by by.
func Values(rows []Row, cell, who, figure string, by float64) (v []float64) {
	for _, r := range rows {
		if got, ok := r.M[figure]; ok && r.Case == cell && r.Name == who {
			v = append(v, got/by)
		}
	}
	return v
}

// Ratios compares round by round.
func Ratios(mine, base []float64) (v []float64) {
	for i := range min(len(mine), len(base)) {
		v = append(v, mine[i]/base[i])
	}
	return v
}

// Spread is "median (least–most)", or one value alone; format is of a number.
func Spread(v []float64, format string) string {
	if len(v) == 0 {
		return "-"
	}
	if len(v) == 1 {
		return fmt.Sprintf(format, v[0])
	}
	return fmt.Sprintf(format+" ("+format+"–"+format+")", Median(v), slices.Min(v), slices.Max(v))
}

// Sum adds figures.
func Sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// Median is that of figures, NaN of none.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return math.NaN()
	}
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
