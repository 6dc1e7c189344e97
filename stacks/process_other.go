//go:build !linux

package stacks

import "os/exec"

func contain(prepare func() *exec.Cmd) error { return tether(prepare()) }

func tether(cmd *exec.Cmd) error { return cmd.Run() }
