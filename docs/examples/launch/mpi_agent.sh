#!/bin/sh
# Stands for ssh: mpirun (Open MPI) calls it with a host and the words of a command.
host=$1
shift
exec testbed in "$host" sh -c "$*"
