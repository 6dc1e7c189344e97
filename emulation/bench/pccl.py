# One rank of an all-reduce with PCCL. An operation uses one connection. So the
# vector is cut into as many slices as there are connections, with a tag each.
import numpy as np
from pccl import (
    Attribute, Communicator, DataType, PCCLError, QuantizationAlgorithm, QuantizationOptions,
    ReduceDescriptor, ReduceOp, ReduceOpDescriptor, ReduceOperandDescriptor)

WAYS = {
    "none": QuantizationOptions(DataType.FLOAT, QuantizationAlgorithm.NONE),
    "min_max": QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.MIN_MAX),
    "zero_point_scale": QuantizationOptions(DataType.UINT8, QuantizationAlgorithm.ZERO_POINT_SCALE),
}


def join(address, ranks, connections, patience):
    """Waits until all ranks are connected. A peer that was voted in makes no vote
    on the topology in its first turn: the others are past theirs."""
    communicator = Communicator(address, p2p_connection_pool_size=connections)
    communicator.connect(n_attempts=patience)
    until = time.monotonic() + patience
    new = True
    while communicator.get_attribute(Attribute.GLOBAL_WORLD_SIZE) < ranks:
        if time.monotonic() > until:
            raise TimeoutError(f"the other peers did not connect within {patience} s")
        try:
            if not new:
                communicator.update_topology()
        except PCCLError:
            pass  # a newcomer was not reachable; vote again
        new = False
        time.sleep(0.02)
    return communicator


def connect():
    address, ranks, connections, patience = sys.argv[1], *map(int, sys.argv[2:])
    communicator = join(address, ranks, connections, patience)
    data, out = np.frombuffer(vector(), np.float32), np.frombuffer(result(), np.float32)
    edges = [k * len(data) // connections for k in range(connections + 1)]

    def operations(options):
        operand = ReduceOperandDescriptor(DataType.FLOAT)
        return [
            ReduceOpDescriptor.from_numpy(
                data[low:high], out[low:high], ReduceDescriptor(high - low, ReduceOp.AVG, tag, operand, options))
            for tag, (low, high) in enumerate(zip(edges, edges[1:]))]

    ways = {name: operations(options) for name, options in WAYS.items()}

    def reduce(way, _vectors=(data, out)):  # operations have pointers into them
        info = communicator.all_reduce_multiple_with_retry(ways[way], max_in_flight=connections)
        if info.local_world_size != ranks:
            raise RuntimeError(f"only {info.local_world_size} of {ranks} peers took part")

    return nothing, reduce, nothing


serve(connect)
