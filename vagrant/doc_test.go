// Package vagrant has no code: it checks the Vagrantfile beside it, and has its
// script prepare a Debian root.
package vagrant
