package blackbox

import (
	"testing"

	"rejoin/tests/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Children{"script": scriptChild, "orphan": orphanChild})
}
