# PCCL's master, which moves no data.
from pccl import MasterNode


def connect():
    global master
    master = MasterNode(sys.argv[1])
    master.run()
    return nothing, nothing, nothing


serve(connect)
