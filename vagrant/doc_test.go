// Package vagrant has no code: it checks the Vagrantfile beside it. What its script
// does is tested in package guest.
package vagrant
