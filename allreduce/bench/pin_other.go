//go:build !linux

package bench

// pin does nothing here: see pin_linux.go.
func pin(int) (release func()) { return func() {} }
