// Package kernel installs a shaping.Plan with Linux network namespaces, veth
// pairs and traffic control, reads it back, counts its drops and removes it. It
// is the only package that uses netlink.
package kernel
