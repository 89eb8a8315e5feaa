package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"rejoin/broker"
)

// size is a number of bytes: a flag and a value of the configuration. It is
// written as 1048576, 64KiB, 8MiB or 1GiB.
type size int64

var sizeUnits = []struct {
	suffix string
	bytes  int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"B", 1}, {"", 1}}

func parseSize(s string) (size, error) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(digits, " "), 10, 63)
		if err != nil || n == 0 || int64(n) > math.MaxInt64/u.bytes {
			break
		}
		return size(int64(n) * u.bytes), nil
	}
	return 0, fmt.Errorf("%q is not a size; write for example 65536, 64KiB or 8MiB", s)
}

// Set implements pflag.Value.
func (s *size) Set(v string) error {
	n, err := parseSize(v)
	if err == nil {
		*s = n
	}
	return err
}

// Type implements pflag.Value.
func (s *size) Type() string { return "size" }

// String is the shortest exact form.
func (s size) String() string {
	for _, u := range []int{2, 1, 0} {
		if unit := sizeUnits[u]; s > 0 && int64(s)%unit.bytes == 0 {
			return strconv.FormatInt(int64(s)/unit.bytes, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// UnmarshalYAML takes a number or a string.
func (s *size) UnmarshalYAML(decode func(any) error) error {
	var v any
	if err := decode(&v); err != nil {
		return err
	}
	return s.Set(fmt.Sprint(v))
}

// MarshalYAML is the form that UnmarshalYAML takes.
func (s size) MarshalYAML() ([]byte, error) { return []byte(s.String()), nil }

// Memory of an agent is written as sizes are.

func readBytes(b *broker.Bytes, raw []byte) error {
	var s size
	if err := s.Set(strings.Trim(string(raw), " \t\r\n\"'")); err != nil {
		return err
	}
	*b = broker.Bytes(s)
	return nil
}

func writeBytes(b broker.Bytes) ([]byte, error) { return size(b).MarshalYAML() }
