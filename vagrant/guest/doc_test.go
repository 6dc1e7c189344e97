// Package guest tests the links on a kernel with netem, whatever kernel this
// machine has. It is made of tests only.
//
// TestMeasuredGuest boots Debian's kernel in an emulator (QEMU, no KVM, no network, no
// disk). The first process there is this package's own test binary, which
// loads modules, runs the steps below one after the other, each as a process of its
// own, and switches the machine off:
//
//	go test ─▶ qemu ─▶ Linux ─▶ /init (guest.test) ─┬─▶ /links.test, the netem half
//	   ▲                                            ├─▶ /init -test.run ^TestNetem
//	   └─────────────── serial line ────────────────┴─▶ /init -test.run ^TestCommand ─▶ /testbed
//
// The emulator counts instructions to tell the time (-icount): one takes a
// nanosecond, an idle guest is at its next timer at once, and the guest's
// clock stops while the emulator waits for a processor. So what the
// guest measures depends neither on the speed nor on the load of this
// machine, and is exact to microseconds.
//
// TestMeasuredProvision has the script of the Vagrantfile prepare a Debian root meanwhile.
package guest
