"""A torchft client made from torchft.proto alone: does with a lighthouse and with
managers what torchft's own clients do, and says what came of it.

Usage: client.py DIR_OF_torchft_pb2 LIGHTHOUSE MANAGER MANAGER [MANAGER…]
The lighthouse has min_replicas 2 and is not that of the managers. Every manager
is of a group of two ranks; the last one is killed at the end."""

import sys
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, sys.argv[1])
import grpc
import torchft_pb2 as pb

pool = ThreadPoolExecutor(32)


class Client:
    def __init__(self, address, service):
        self.channel = grpc.insecure_channel(address.removeprefix("http://"))
        self.service = service

    def __call__(self, method, request, timeout=30):
        response = getattr(pb, request.DESCRIPTOR.name.replace("Request", "Response"))
        call = self.channel.unary_unary(
            f"/torchft.{self.service}/{method}",
            request_serializer=lambda m: m.SerializeToString(),
            response_deserializer=response.FromString,
        )
        return call(request, timeout=timeout)

    def raw(self, method, data):
        call = self.channel.unary_unary(f"/torchft.{self.service}/{method}")
        return call(data, timeout=30)


def fails(code, words, f, *args, **kwargs):
    try:
        answer = f(*args, **kwargs)
    except grpc.RpcError as e:
        # This library has a clock of its own, and says so when that is first.
        if code == grpc.StatusCode.CANCELLED and e.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
            return
        assert e.code() == code, (e.code(), code, e.details())
        assert words in e.details(), (words, e.details())
    else:
        raise AssertionError(f"answered {answer}, and should have said {code}")


code = grpc.StatusCode


def lighthouse(address):
    c = Client(address, "LighthouseService")
    c("Heartbeat", pb.LighthouseHeartbeatRequest(replica_id="a"))
    member = pb.QuorumMember(
        replica_id="a:1", address="http://a:1", store_address="a:2", step=7,
        world_size=2, data='{"k": "ü"}', commit_failures=1)
    other = pb.QuorumMember(replica_id="b:1", step=3)
    ask = lambda m: pool.submit(c, "Quorum", pb.LighthouseQuorumRequest(requester=m))
    first, second = ask(member), ask(other)
    for answer in first.result(), second.result():
        q = answer.quorum
        assert [p.replica_id for p in q.participants] == ["a:1", "b:1"], q
        assert q.participants[0] == member and q.participants[1] == other, q
        assert q.quorum_id > 0 and q.created.seconds > 0, q
    # One alone is not enough, and is told when its time is over.
    fails(code.CANCELLED, "Timeout expired", c, "Quorum",
          pb.LighthouseQuorumRequest(requester=other), timeout=0.5)
    fails(code.INVALID_ARGUMENT, "missing requester", c, "Quorum", pb.LighthouseQuorumRequest())
    fails(code.UNIMPLEMENTED, "", c.raw, "Nothing", b"")
    fails(code.INTERNAL, "", c.raw, "Heartbeat", b"\x0a\xff")
    fails(code.RESOURCE_EXHAUSTED, "", c.raw, "Quorum", bytes(1 << 20))


def quorums(managers, steps, **fields):
    """All ranks of all groups ask at once; returns answers by group and rank."""
    asked = [[
        pool.submit(m, "Quorum", pb.ManagerQuorumRequest(
            group_rank=rank, step=steps[g], checkpoint_metadata=f"state of {g}.{rank}", **fields))
        for rank in range(2)] for g, m in enumerate(managers)]
    return [[f.result() for f in ranks] for ranks in asked]


def vote(m, votes):
    asked = [pool.submit(m, "ShouldCommit", pb.ShouldCommitRequest(
        group_rank=rank, step=1, should_commit=v)) for rank, v in enumerate(votes)]
    return [f.result().should_commit for f in asked]


def managers(addresses):
    ms = [Client(a, "ManagerService") for a in addresses]
    # At step 0 all take the primary's state, which is another for each rank.
    got = quorums(ms, [0] * len(ms), init_sync=True)
    for rank in range(2):
        healing = [got[g][rank].heal for g in range(len(ms))]
        assert sum(healing) == len(ms) - 1 and not healing[rank % len(ms)], healing
    for g, m in enumerate(ms):
        assert vote(m, [True, True]) == [True, True]
        assert vote(m, [True, False]) == [False, False]
    # The first has fallen behind, and heals from one of the others.
    got = quorums(ms, [4] + [5] * (len(ms) - 1))
    a = got[0][0]
    assert a.heal and a.max_step == 5 and not a.HasField("max_replica_rank"), a
    assert a.recover_src_replica_rank == 1 and a.recover_src_manager_address == addresses[1], a
    assert a.replica_world_size == len(ms) and len(a.replica_ids) == len(ms), a
    b = got[1][0]
    assert not b.heal and list(b.recover_dst_replica_ranks) == [0] and b.max_replica_rank == 0, b
    source = Client(a.recover_src_manager_address, "ManagerService")
    answer = source("CheckpointMetadata", pb.CheckpointMetadataRequest(rank=0))
    assert answer.checkpoint_metadata == "state of 1.0", answer

    m = ms[0]
    fails(code.INVALID_ARGUMENT, "rank", m, "CheckpointMetadata", pb.CheckpointMetadataRequest(rank=7))
    fails(code.INVALID_ARGUMENT, "rank", m, "ShouldCommit", pb.ShouldCommitRequest(group_rank=-1))
    fails(code.INVALID_ARGUMENT, "missing timeout", m, "Quorum", pb.ManagerQuorumRequest(), timeout=None)
    fails(code.CANCELLED, "Timeout expired", m, "Quorum", pb.ManagerQuorumRequest(), timeout=0.5)
    fails(code.CANCELLED, "Timeout expired", m, "ShouldCommit",
          pb.ShouldCommitRequest(should_commit=True), timeout=0.5)
    fails(code.UNAVAILABLE, "", ms[-1], "Kill", pb.KillRequest(msg="by the client"))


lighthouse(sys.argv[2])
managers(sys.argv[3:])
print("ok")
