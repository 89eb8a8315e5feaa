package harness

import (
	"os"
	"strconv"
	"testing"
)

// Setting returns the number in the environment variable name, or preset.
func Setting(tb testing.TB, name string, preset int) int {
	tb.Helper()
	text := os.Getenv(name)
	if text == "" {
		return preset
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		tb.Fatalf("%s: %v", name, err)
	}
	return n
}
