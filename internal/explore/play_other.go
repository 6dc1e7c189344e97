//go:build !linux

package main

import (
	"errors"
	"time"
)

func playRuns(time.Duration, uint64, *log) error {
	return errors.New("real runs need Linux")
}
