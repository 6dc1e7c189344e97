package words_test

import (
	"testing"

	"testbed/internal/rapidtest"
)

func TestMain(m *testing.M) { rapidtest.Main(m, 3000) }
