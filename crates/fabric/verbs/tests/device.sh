# Runs inside a guest: creates Soft-RoCE on a dummy interface, so that queue pairs of this guest reach each other.
ip link set lo up
ip link add d0 type dummy
ip addr add 10.0.0.1/24 dev d0
ip link set d0 up
rdma link add rxe0 type rxe netdev d0
