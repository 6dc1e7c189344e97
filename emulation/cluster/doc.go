// Package cluster is everything about a run over several hosts: which node is on
// which host (placement), how the hosts find and trust their leader (one QUIC
// connection each, on which both ends prove that they know the run's token), what
// the network between them carries (survey), and the part that a host plays in a run
// (Gather, Serve, Run). Nothing here starts a program on another machine: that is
// the business of a person, or of the scheduler that a cluster has.
package cluster
