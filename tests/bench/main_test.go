package bench

import (
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"stamps": stampsChild, "lines": linesChild, "single": singleChild})
}
