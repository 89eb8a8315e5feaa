package main

import (
	"fmt"
	"strconv"
	"time"
)

// duration is a time.Duration as a flag and as a value of the configuration,
// where a bare number is refused: it would not say of what.
type duration time.Duration

func (d duration) String() string { return time.Duration(d).String() }

// Type names the flag's value in the help.
func (d *duration) Type() string { return "duration" }

// Set parses what time.ParseDuration takes.
func (d *duration) Set(s string) error {
	v, err := time.ParseDuration(s)
	if err != nil || isNumber(s) {
		return fmt.Errorf("%q must be a duration such as 60s", s)
	}
	*d = duration(v)
	return nil
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil && s != "0"
}

// UnmarshalYAML takes a string.
func (d *duration) UnmarshalYAML(decode func(any) error) error {
	var v any
	if err := decode(&v); err != nil {
		return err
	}
	return d.Set(fmt.Sprint(v))
}

// MarshalYAML is the form that UnmarshalYAML takes.
func (d duration) MarshalYAML() ([]byte, error) { return []byte(d.String()), nil } //nolint:unparam // yaml.BytesMarshaler

// count is an unsigned number as a flag, whose error says what is wanted.
type count uint64

func (c *count) String() string { return strconv.FormatUint(uint64(*c), 10) }

// Type names the flag's value in the help.
func (c *count) Type() string { return "uint" }

// Set parses decimal digits.
func (c *count) Set(s string) error {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return fmt.Errorf("want a whole number from 0 on")
	}
	*c = count(v)
	return nil
}
