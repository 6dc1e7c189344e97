"""Stands in for PCCL, and misbehaves as FAKE_PCCL says."""

import enum
import os
import socket
import subprocess
import sys
import time

MODE = os.environ["FAKE_PCCL"]


class PCCLError(Exception):
    pass


class Attribute(enum.Enum):
    GLOBAL_WORLD_SIZE = 0


class DataType(enum.Enum):
    FLOAT, UINT8 = range(2)


class QuantizationAlgorithm(enum.Enum):
    NONE, MIN_MAX, ZERO_POINT_SCALE = range(3)


class ReduceOp(enum.Enum):
    AVG = 0


def QuantizationOptions(*_):
    pass


def ReduceOperandDescriptor(*_):
    pass


def ReduceDescriptor(*_):
    pass


class ReduceOpDescriptor:
    @staticmethod
    def from_numpy(data, out, _):
        return data, out


class MasterNode:
    def __init__(self, address):
        pass

    def run(self):
        print("a line of a log that is no JSON")


class Info:
    local_world_size = 2


class Communicator:
    def __init__(self, address, p2p_connection_pool_size):
        if MODE == "no master":
            raise PCCLError("the master is not there")

    def connect(self, n_attempts):
        pass

    def get_attribute(self, attribute):
        return 2

    def all_reduce_multiple_with_retry(self, operations, max_in_flight):
        if MODE == "wrong":  # each rank has its own values
            for data, out in operations:
                out[:] = data
        last = socket.gethostname() == "w1"
        if MODE == "nothing":
            return Info()  # and no result
        if MODE == "alone":
            Info.local_world_size = 1
        if MODE == "hang" or MODE in ("fatal", "daemon") and not last:
            time.sleep(1000)
        if MODE == "daemon":
            subprocess.Popen(["sleep", "1000"], start_new_session=True)
        if MODE in ("fatal", "daemon"):
            print("{" * 100_000)
            print("2026 - FATAL: a bug", flush=True)
            print(file=sys.stderr, flush=True)
            os._exit(1)
        return Info()
