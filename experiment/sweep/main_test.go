package sweep_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a pool leaves goroutines behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
