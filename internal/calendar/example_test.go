package calendar_test

import (
	"fmt"
	"time"

	"github.com/drawgate/drawgate/internal/calendar"
)

func ExampleRule_Window() {
	newYork, err := calendar.LoadZone("America/New_York")
	if err != nil {
		fmt.Println(err)
		return
	}
	rule := calendar.Rule{Unit: calendar.Day, Zone: newYork}
	noon := time.Date(2026, time.November, 1, 12, 0, 0, 0, newYork) // the day on which daylight saving ends
	start, end := rule.Window(noon.UnixMicro())
	fmt.Println(time.UnixMicro(start).In(newYork))
	fmt.Println(time.UnixMicro(end).In(newYork))
	fmt.Println(time.Duration(end-start) * time.Microsecond)
	// Output:
	// 2026-11-01 00:00:00 -0400 EDT
	// 2026-11-02 00:00:00 -0500 EST
	// 25h0m0s
}
