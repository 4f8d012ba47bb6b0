package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/drawgate/drawgate/config"
	"github.com/drawgate/drawgate/internal/pattern"
)

// durationValue is a flag that accepts the same durations as a file, with days and weeks.
type durationValue time.Duration

// durationVar adds a flag for a duration.
func durationVar(cmd *cobra.Command, p *time.Duration, name string, value time.Duration, help string) {
	*p = value
	cmd.Flags().Var((*durationValue)(p), name, help)
}

func (d *durationValue) String() string {
	if *d == 0 {
		return "" // the help text then shows no default
	}
	return time.Duration(*d).String()
}

func (d *durationValue) Type() string { return "duration" }

var bareNumber = pattern.New(`^[0-9]+$`)

// Set reads a duration. The commands say which may be negative.
func (d *durationValue) Set(text string) error {
	positive, negative := strings.CutPrefix(text, "-")
	if bareNumber().MatchString(positive) && strings.Trim(positive, "0") != "" {
		return fmt.Errorf("the duration has no unit: write %ss for seconds, %[1]sm for minutes", text)
	}
	t, err := config.ParseDuration(positive)
	if negative {
		t = -t
	}
	*d = durationValue(t)
	return err
}

// keyValue is a flag that must not be empty. An empty key is usually an unset shell variable, and
// would be counted as a caller of its own.
type keyValue string

func (k *keyValue) String() string { return string(*k) }
func (k *keyValue) Type() string   { return "string" }

func (k *keyValue) Set(text string) error {
	if text == "" {
		return errors.New("the key is empty: perhaps a shell variable is not set; leave --key out for the default key")
	}
	*k = keyValue(text)
	return nil
}

// plainFlagError replaces what package strconv says about a flag's number.
func plainFlagError(err error) error {
	number, ok := errors.AsType[*strconv.NumError](err)
	if !ok || number.Func == "ParseBool" {
		return err
	}
	text := "give a whole number"
	if errors.Is(number, strconv.ErrRange) {
		text = "the number is too large or too small"
	} else if number.Func == "ParseFloat" {
		text = "give a number"
	}
	return errors.New(strings.Replace(err.Error(), number.Error(), text, 1))
}
